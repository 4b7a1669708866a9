"""The options of a join in a job file: those of the methods of `Join`, by the same names.

The table `options()` is read from the methods themselves. An option is a table of a method's
arguments; or, for its first argument alone, the value itself, and for any number of them an array.
"""

from __future__ import annotations

import ast
import inspect
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from datetime import timedelta
from functools import cache
from typing import Any, Literal

from streamshed import conditions
from streamshed.database import postgres
from streamshed.errors import SpecError, listed, suggestion
from streamshed.join import Join, join
from streamshed.limits import Limited
from streamshed.relations import relation

Schema = dict[str, Any]
"""A JSON schema, or a part of one."""

_Policy = typing.NewType("_Policy", object)
_Relation = typing.NewType("_Relation", object)
_Rows = typing.NewType("_Rows", object)
"""Stand for what a job file has tables for, in the types of arguments."""

CONDITIONS = {
    function.__name__: function
    for function in (conditions.near, conditions.cosine, conditions.inner_product)
}
"""The conditions that need no code."""

_SIMPLE = {str: "string", bool: "boolean", int: "integer", float: "number", os.PathLike: "string"}


@dataclass(frozen=True)
class Option:
    """One method: its arguments, and the JSON schema of each."""

    name: str
    about: str
    call: Callable[..., Any]
    parameters: tuple[inspect.Parameter, ...]
    schemas: Mapping[str, Schema]

    @property
    def named(self) -> dict[str, inspect.Parameter]:
        """The arguments that have names."""
        return {one.name: one for one in self.parameters if one.kind is not one.VAR_KEYWORD}

    @property
    def rest(self) -> inspect.Parameter | None:
        """What takes any other name, if anything does: the streams, in `.on` and `.through`."""
        return next((one for one in self.parameters if one.kind is one.VAR_KEYWORD), None)

    @property
    def schema(self) -> Schema:
        """The JSON schema of the option."""
        first = self.parameters[0]
        rest = self.rest
        table: Schema = {
            "type": "object",
            "properties": {name: self._schema(one) for name, one in self.named.items()},
            "additionalProperties": False if rest is None else self.schemas[rest.name],
        }
        needed = [
            name
            for name, one in self.named.items()
            if one.default is one.empty and one.kind is not one.VAR_POSITIONAL
        ]
        if needed:
            table["required"] = needed
        forms = [table]
        if first.kind is not first.KEYWORD_ONLY and needed in ([], [first.name]):
            short = self._schema(first)
            forms = [
                *(one for one in short.get("anyOf", [short]) if one.get("type") != "object"),
                table,
            ]
        if self.name in _REPEATED:
            forms.append({"type": "array", "items": table})
        return {"description": self.about, **_any_of(forms)}

    def _schema(self, parameter: inspect.Parameter) -> Schema:
        found = self.schemas[parameter.name]
        if parameter.kind is not parameter.VAR_POSITIONAL:
            return found
        return {**_any_of([found, {"type": "array", "items": found}])}

    def arguments(self, value: Any) -> tuple[list[Any], dict[str, Any]]:
        """The arguments that the value of the option stands for."""
        first = self.parameters[0]
        if not isinstance(value, Mapping) or (
            self.name in _CONDITION_TAKING and _is_condition(value)
        ):
            value = {first.name: value}
        read = {name: _read(given, self.schemas.get(name, {})) for name, given in value.items()}
        positional: list[Any] = []
        for name, parameter in self.named.items():
            if name in read and parameter.kind is parameter.VAR_POSITIONAL:
                several = read.pop(name)
                positional += several if isinstance(several, list) else [several]
            elif name in read and parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(read.pop(name))
        return positional, read


_CONDITION_TAKING = ("on",)
_REPEATED = ("between",)
"""Methods that add to what they said before: an array of tables calls them once for each."""


def _is_condition(value: Mapping[str, Any]) -> bool:
    """Whether a table is a condition: a table of arguments under the name of one."""
    return len(value) == 1 and isinstance(value.get(next(iter(value))), Mapping)


def _option(call: Callable[..., Any], name: str | None = None, method: bool = False) -> Option:
    about, described = _documented(call)
    hints = typing.get_type_hints(call, localns={"Policy": _Policy, "DataFrame": object})
    parameters = tuple(inspect.signature(call).parameters.values())[1 if method else 0 :]
    schemas = {}
    for one in parameters:
        schema = _schema_of(_STANDS_FOR.get((call.__name__, one.name), hints[one.name]))
        text = described.get(one.name)
        schemas[one.name] = {"description": text, **schema} if text else schema
    return Option(name or call.__name__, about, call, parameters, schemas)


_STANDS_FOR = {
    ("through", "relation"): _Relation,
    ("relation", "data"): _Rows,
    ("relation", "changes"): _Rows,
}
"""Arguments that in Python take data of any kind."""


def _schema_of(hint: Any) -> Schema:
    """The JSON schema of a type."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        parts = [one for one in typing.get_args(hint) if one not in (type(None), timedelta)]
        return _any_of([_schema_of(one) for one in parts])
    if origin is Literal:
        return {"enum": list(typing.get_args(hint))}
    if hint in _SIMPLE or origin in _SIMPLE:
        return {"type": _SIMPLE[hint if hint in _SIMPLE else origin]}
    if origin in (list, tuple, Sequence):
        return {"type": "array", "items": _schema_of(typing.get_args(hint)[0])}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _schema_of(typing.get_args(hint)[1])}
    refs = {
        _Policy: "policy",
        _Relation: "relation",
        _Rows: "rows",
        conditions.PairCondition: "condition",
    }
    return {"$ref": f"#/$defs/{refs[hint]}"}


def _any_of(forms: list[Schema]) -> Schema:
    """One schema for several; plain types go together."""
    unlike: list[Schema] = []
    for form in forms:
        for one in form.get("anyOf", [form]):
            if one not in unlike:
                unlike.append(one)
    plain = [one["type"] for one in unlike if set(one) == {"type"} and isinstance(one["type"], str)]
    others = [one for one in unlike if set(one) != {"type"}]
    if len(plain) > 1:
        others = [{"type": plain}, *others]
    elif plain:
        others = [{"type": plain[0]}, *others]
    return others[0] if len(others) == 1 else {"anyOf": others}


def _documented(call: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The first sentence of a docstring, and what it says of each argument."""
    text = inspect.getdoc(call) or ""
    about = text.partition("\n")[0]
    found: dict[str, str] = {}
    _, _, args = text.partition("Args:\n")
    name = ""
    for line in args.splitlines():
        if not line.startswith("    "):
            break
        if line.startswith("        "):
            found[name] += f" {line.strip()}"
        else:
            name, _, said = line.strip().partition(": ")
            found[name] = said
    return about, found


@cache
def options() -> dict[str, Option]:
    """The options of a join by their names: the public methods that describe it."""
    return {
        name: _option(method, method=True)
        for name, method in (vars(Join) | vars(Limited)).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }


@cache
def stream_option() -> Option:
    """The arguments of `Join.stream` besides the inputs."""
    about, described = _documented(Join.stream)
    parameters = tuple(inspect.signature(Join.stream).parameters.values())
    kept = tuple(one for one in parameters if one.kind is one.KEYWORD_ONLY)
    hints = {one.name: eval(str(one.annotation), {"Mapping": Mapping}) for one in kept}
    schemas = {
        name: {"description": described[name], **_schema_of(hint)} for name, hint in hints.items()
    }
    return Option("stream", about, Join.stream, kept, schemas)


def definitions() -> dict[str, Schema]:
    """The JSON schemas of what several options have in common."""
    from streamshed.policies import NAMED

    return {
        "condition": {
            "type": "object",
            "description": "A condition that every two members of a result meet.",
            "properties": {name: _option(one).schema for name, one in CONDITIONS.items()},
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        },
        "policy": {
            "type": "object",
            "description": "A policy with parameters of its own.",
            "required": ["name"],
            "properties": {
                "name": {"enum": sorted(NAMED)},
                **{
                    part.name: _parameter(policy, part.name)
                    for policy in NAMED.values()
                    for part in fields(policy)
                    if part.init
                },
            },
            "additionalProperties": False,
        },
        "rows": {
            "description": "The path of a Parquet file, or a table of PostgreSQL.",
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {"postgres": _option(postgres).schema},
                    "required": ["postgres"],
                    "additionalProperties": False,
                },
            ],
        },
        "relation": _option(relation).schema,
    }


def _parameter(policy: type, name: str) -> Schema:
    return _schema_of(typing.get_type_hints(policy)[name])


def _read(value: Any, schema: Schema) -> Any:
    """The argument that a value of a job file stands for."""
    refs = {form.get("$ref", "").rpartition("/")[2] for form in schema.get("anyOf", [schema])}
    if "condition" in refs:
        if isinstance(value, list):
            return [_read(one, schema) for one in value]
        return _condition(value) if isinstance(value, Mapping) else value
    if "policy" in refs and isinstance(value, Mapping):
        return _policy(value)
    if "relation" in refs:
        option = _option(relation)
        positional, by_name = option.arguments(value)
        return relation(*positional, **by_name)
    if "rows" in refs and isinstance(value, Mapping):
        return postgres(**value["postgres"])
    return value


def _condition(value: Mapping[str, Any]) -> conditions.PairCondition:
    ((name, arguments),) = value.items()
    if name == "where":
        raise SpecError(
            "where() takes a function, and a job file holds no code; use near, cosine or "
            "inner_product, or run the join from Python"
        )
    if name not in CONDITIONS:
        raise SpecError(
            f"there is no condition {name!r}; known are {listed(CONDITIONS)}."
            f"{suggestion(name, CONDITIONS)}"
        )
    made: conditions.PairCondition = CONDITIONS[name](**arguments)
    return made


def _policy(value: Mapping[str, Any]) -> Any:
    from streamshed import policies

    name = value["name"]
    policy = type(policies.by_name(name))
    known = [part.name for part in fields(policy) if part.init]
    for one in value:
        if one != "name" and one not in known:
            raise SpecError(
                f"the policy {name!r} has no parameter {one!r}; it has {listed(known)}."
                f"{suggestion(one, known)}"
            )
    arguments = {
        one: tuple(part) if isinstance(part, list) else part
        for one, part in value.items()
        if one != "name"
    }
    return policy(**arguments)


def build(
    streams: Sequence[str], said: Mapping[str, Any]
) -> tuple[Join | None, list[tuple[str, str]]]:
    """The join that options describe, and the options that are wrong with what is wrong.

    Args:
        streams: the streams, unless the options name them.
        said: the options by name; `by` and `streams` too.
    """
    problems: list[tuple[str, str]] = []
    named = said.get("streams", list(streams))
    try:
        made = join(by=said["by"]) if "by" in said else join(*named)
    except SpecError as error:
        return None, [
            ("by" if "by" in said else "streams" if "streams" in said else "", str(error))
        ]
    for name, option in options().items():
        if name not in said:
            continue
        several = name in _REPEATED and isinstance(said[name], list)
        try:
            for value in said[name] if several else [said[name]]:
                positional, by_name = option.arguments(value)
                made = option.call(made, *positional, **by_name)
        except (SpecError, TypeError) as error:
            problems.append((name, _short(error, name)))
    return made, problems


def _short(error: Exception, name: str) -> str:
    """A message without the method, which the option's name says already."""
    return str(error).removeprefix(f".{name}(): ").removeprefix(f"Join.{name}() ")


def described(joined: Join) -> dict[str, Any]:
    """The options that describe a join: what `build` reads.

    Example:
        >>> from streamshed import join
        >>> described(join("a", "b").on("k").within("1 minute", time="ts").keep(total=5))
        {'streams': ['a', 'b'], 'on': ['k'], \
'within': {'duration': '1 minute', 'time': 'ts'}, 'keep': {'total': 5}}
    """
    # The join writes itself as the chain of calls that makes it.
    try:
        node: Any = ast.parse(repr(joined), mode="eval").body
    except SyntaxError:
        raise SpecError(
            f"{joined!r} has a part that a job file cannot hold, such as a relation that is in "
            "memory or a function; write the job by hand, with the path of a file for it"
        ) from None
    found: dict[str, Any] = {}
    while isinstance(node.func, ast.Attribute):
        option = options()[node.func.attr]
        said = _said(option, node)
        if option.name in found:  # said several times, and written last to first
            before = found.pop(option.name)
            said = {
                option.name: [
                    said[option.name],
                    *(before if isinstance(before, list) else [before]),
                ]
            }
        found = {**said, **found}
        node = node.func.value
    by = {one.arg: ast.literal_eval(one.value) for one in node.keywords}
    streams = [ast.literal_eval(one) for one in node.args]
    return {**(by or {"streams": streams}), **found}


def _said(option: Option, node: ast.Call) -> dict[str, Any]:
    """An option as a job file has it, of a call of its method."""
    values = [_literal(one) for one in node.args]
    table: dict[str, Any] = {}
    for one in node.keywords:
        if one.arg is None:
            table.update(_literal(one.value))
        else:
            table[one.arg] = _literal(one.value)
    first, *others = option.parameters
    if first.kind is first.VAR_POSITIONAL:
        return {option.name: {first.name: values, **table} if values and table else values or table}
    if len(values) == 1 and not table and not isinstance(values[0], Mapping):
        return {option.name: values[0]}
    names = [one.name for one in (first, *others)]
    return {option.name: {**dict(zip(names, values, strict=False)), **table}}


def _literal(node: ast.expr) -> Any:
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    arguments = {one.arg: ast.literal_eval(one.value) for one in node.keywords if one.arg}
    if isinstance(node.func, ast.Attribute):  # policies.Sketch(…)
        from streamshed import policies

        made = getattr(policies, node.func.attr)(**arguments)
        usual = {part.name: part.default for part in fields(made)}
        changed = {
            name: value
            for name, value in arguments.items()
            if usual[name] is MISSING or usual[name] != value
        }
        return {"name": made.name, **changed}
    assert isinstance(node.func, ast.Name)
    option = _option(CONDITIONS[node.func.id])
    names = [one.name for one in option.parameters]
    given = dict(zip(names, map(ast.literal_eval, node.args), strict=False))
    return {node.func.id: {**given, **arguments}}
