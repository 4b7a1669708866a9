"""What a job file may not hold: code, ways to start some, and secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from streamshed.errors import listed
from streamshed.jobs.reading import Keys, Origin

_CODE = re.compile(
    r"spark\.(jars|jars\.packages|jars\.repositories|jars\.ivySettings|files|archives|plugins)"
    r"|spark\.(submit\.pyFiles|extraListeners|redaction\..*|executorEnv\..*|yarn\.dist\..*)"
    r"|spark\.pyspark\.(driver\.)?python|spark\.sql\.execution\.pyspark\.python"
    r"|spark\.python\.(daemon|worker)\.module"
    r"|spark\.(driver|executor)\.(extra|default)(JavaOptions|ClassPath|LibraryPath)"
    r"|spark\..*(discoveryScript|[cC]ommand|\.script|podTemplateFile)"
    r"|spark\.sql\.(queryExecutionListeners|streaming\.streamingQueryListeners)"
    r"|spark\.sql\.hive\.metastore\.(jars.*)"
    r"|spark\.serializer|spark\.kryo\..*|spark\.r\..*"
)
"""Settings by which code is loaded or a command is run."""
_CLASSES = re.compile(r"spark\.sql\.(extensions|catalog\.[^.]+)")
_PACKAGE = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")
_GROUPS = (
    "org.apache.spark",
    "org.apache.kafka",
    "io.delta",
    "org.apache.iceberg",
    "org.apache.hudi",
)
"""Who makes the connectors that a job file may name."""
_TRUSTED = ("io.delta.", "org.apache.iceberg.", "org.apache.hudi.", "org.apache.spark.")
_SECRET = re.compile(
    r"passw|secret|token$|credential|jaas|private.?key|access.?key|account.?key|api.?key",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"://[^/\s:@]+:[^/\s@]+@")

Trouble = Iterator[tuple[Keys, str]]


def check_spark(spark: Mapping[str, Any]) -> Trouble:
    """What is wrong in the table of Spark's settings."""
    for name, value in spark.get("conf", {}).items():
        keys: Keys = ("spark", "conf", name)
        if not name.startswith("spark."):
            yield keys, f"{name!r} is not a Spark setting; their names begin with 'spark.'"
        elif name in ("spark.master", "spark.app.name"):
            other = "spark.master" if name == "spark.master" else "name"
            yield keys, f"give it as `{other}` of the job"
        elif name == "spark.jars.packages":
            yield keys, "give it as `spark.packages`, an array"
        elif _CODE.fullmatch(name):
            yield (
                keys,
                (
                    f"{name!r} loads code or runs a command, which a job file may not; give it on "
                    f"the command line, as in --set {name}=…"
                ),
            )
        elif _CLASSES.fullmatch(name) and not all(
            one.strip().startswith(_TRUSTED) for one in str(value).split(",")
        ):
            yield (
                keys,
                (
                    f"{value!r} is code that the job file would load; only classes of "
                    f"{listed(one.rstrip('.') for one in _TRUSTED)} are allowed here; give others "
                    f"on the command line, as in --set {name}=…"
                ),
            )
    for place, package in enumerate(spark.get("packages", ())):
        keys = ("spark", "packages", place)
        if not _PACKAGE.fullmatch(package):
            yield keys, f"{package!r} is not a package; write group:artifact:version, as Maven does"
        elif package.partition(":")[0] not in _GROUPS:
            yield (
                keys,
                (
                    f"{package!r} is code of others than {listed(_GROUPS)}; give it on the command "
                    f"line, as in --set spark.jars.packages={package}"
                ),
            )


def check_secrets(values: Any, origin: Origin, keys: Keys = ()) -> Trouble:
    """Secrets that stand in the job file itself."""
    if isinstance(values, Mapping):
        for name, value in values.items():
            yield from check_secrets(value, origin, (*keys, name))
    elif isinstance(values, list):
        for place, value in enumerate(values):
            yield from check_secrets(value, origin, (*keys, place))
    elif isinstance(values, str) and keys not in origin.replaced:
        free = (keys[:1] == ("sources",) and "options" in keys) or keys[:2] == ("spark", "conf")
        free = free or keys[:2] == ("sink", "options")
        if (free and _SECRET.search(str(keys[-1])) and values) or _LOGIN.search(values):
            yield (
                keys,
                (
                    "this looks like a secret, and a job file holds none; set it in the "
                    "environment, and write ${NAME} here"
                ),
            )
