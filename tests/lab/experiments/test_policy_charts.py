"""The charts of the page of policies, in small."""

from __future__ import annotations

from dataclasses import replace

from streamshed.policies import NAMED
from streamshed_lab.experiments.policy_charts import RELATION, chart, measure, panels, table


def test_with_all_the_rows_it_needs_a_policy_keeps_all():
    small = {name: panel for name, panel in panels(0.25).items() if name != RELATION}
    rows = measure(
        {name: replace(panel, policies=("oldest",)) for name, panel in small.items()}, (0.2, 1.0)
    )
    kept = {(row["panel"], row["budget"]): row["kept"] for row in rows}
    for name in small:
        assert 0 <= kept[name, 0.2] < kept[name, 1.0] == 1


def test_a_chart_has_the_panels_of_its_policy():
    panel = {"budget": 0.2, "kept": 0.5}
    rows = [
        {"panel": name, "policy": policy, **panel}
        for name, one in panels(0.25).items()
        for policy in one.policies
    ]

    def titles(policy: str) -> list[str]:
        return [part["layer"][0]["title"] for part in chart(rows, policy).to_dict()["hconcat"]]

    assert titles("sketch") == ["funnel", "unique keys", "recurring keys"]
    assert titles("importance") == [RELATION]
    lines = table(rows).splitlines()
    assert len(lines) == 2 + len(NAMED)
    assert "| `sketch` | 50% | 50% | 50% | – |" in lines
