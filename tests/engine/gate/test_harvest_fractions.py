"""Harvesting: the paper's formulas, its example, and how near greedy comes to the best."""

from __future__ import annotations

import time
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from streamshed.engine.gate.harvest_fractions import (
    METRICS,
    Directions,
    cost_and_output,
    everything,
    full_cost,
    greedy,
)
from streamshed.engine.gate.random_drop import best_rates
from streamshed_lab.experiments.grubjoin.harvesting import example_of_figure_4, random_directions
from streamshed_lab.offline.harvesting import best

Numbers = npt.NDArray[np.float64]


def by_the_paper(known: Directions, taken: npt.NDArray[np.int64]) -> tuple[float, float]:
    """C and O written out as in section IV-C."""
    streams, steps = taken.shape
    cost = output = 0.0
    for i in range(streams):
        z = taken[i] / known.parts[i]
        yields = [known.yields[i, j, taken[i, j]] for j in range(steps)]
        through = [
            np.prod([yields[k] * known.selectivities[i, k] * known.sizes[i, k] for k in range(j)])
            for j in range(steps + 1)
        ]
        cost += known.rates[i] * sum(z[j] * known.sizes[i, j] * through[j] for j in range(steps))
        output += known.rates[i] * through[steps]
    return cost, output


@pytest.mark.parametrize("seed", range(5))
def test_cost_and_output_are_the_papers(seed: int) -> None:
    known = random_directions(seed, streams=4, parts=6)
    random = np.random.default_rng(seed)
    for _ in range(20):
        taken = random.integers(1, 7, (4, 3))
        assert cost_and_output(known, taken) == pytest.approx(by_the_paper(known, taken))


def test_brute_force_is_the_best_of_all() -> None:
    for seed, throttle in product(range(2), (0.05, 0.3, 0.7)):
        known = random_directions(seed, parts=3)
        budget = throttle * full_cost(known)
        settings = [(0, 0), *product(range(1, 4), repeat=2)]
        outcomes = [by_the_paper(known, np.array(rows)) for rows in product(settings, repeat=3)]
        most = max(output for cost, output in outcomes if cost <= budget)
        cost, output = cost_and_output(known, best(known, throttle))
        assert cost <= budget * (1 + 2e-9)
        assert output == pytest.approx(most)


@pytest.mark.parametrize("throttle", [0.05, 0.1, 0.2, 0.4, 0.6, 0.8])
def test_greedy_is_within_two_percent_of_the_best(throttle: float) -> None:
    """500 runs in the paper's setting (figure 7)."""
    reached = []
    for seed in range(500):
        known = random_directions(seed)
        cost, output = cost_and_output(known, greedy(known, throttle))
        assert cost <= throttle * full_cost(known) * (1 + 2e-9)
        most = cost_and_output(known, best(known, throttle))[1]
        assert output <= most * (1 + 2e-9)
        reached.append(output / most)
    assert np.mean(reached) >= 0.98


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("side", ["forward", "reverse", "double"])
def test_every_greedy_keeps_to_the_budget(metric: str, side: str) -> None:
    for seed, throttle in product(range(20), (0.0, 0.01, 0.2, 0.5, 0.9, 1.0)):
        known = random_directions(seed, streams=3 + seed % 3, parts=5)
        taken = greedy(known, throttle, metric, side)  # type: ignore[arg-type]
        assert cost_and_output(known, taken)[0] <= throttle * full_cost(known) * (1 + 2e-9)
        none = (taken == 0).any(axis=1)
        assert (taken[none] == 0).all()  # a direction is taken in all its windows, or not at all
        if throttle == 1:
            assert (taken == everything(known)).all()


def test_greedy_is_fast() -> None:
    """Five streams of 20 basic windows each take no more than 10 ms."""
    known = random_directions(1, streams=5, parts=20)
    greedy(known, 0.5)
    for throttle in (0.01, 0.25, 0.5, 0.9):
        start = time.process_time()
        greedy(known, throttle)
        assert time.process_time() - start < 0.010


@pytest.mark.parametrize("spread", [2.0, 3.0, 4.0])
def test_figure_4_takes_all_of_the_third_direction(spread: float) -> None:
    """S2 lags 4 s behind S1, S3 5 s: what matches a tuple of S3 has come already."""
    known = example_of_figure_4(spread)
    assert best(known, 0.5)[2].tolist() == [5, 5]
    assert greedy(known, 0.5)[2].tolist() == [5, 5]


@pytest.mark.parametrize("seed", range(6))
def test_no_other_rates_of_dropping_make_more(seed: int) -> None:
    known = random_directions(seed, streams=3)
    orders = np.array([[1, 2], [2, 0], [0, 1]])

    def cost(let_in: Numbers) -> float:
        total = 0.0
        for i in range(3):
            one, two = orders[i]
            size = known.sizes[i, 0] * let_in[one], known.sizes[i, 1] * let_in[two]
            through = known.selectivities[i, 0] * size[0]
            total += known.rates[i] * let_in[i] * (size[0] + through * size[1])
        return total

    grid = np.linspace(0.02, 1, 50)
    for throttle in (0.05, 0.3, 0.8):
        budget = throttle * cost(np.ones(3))
        found = best_rates(known, orders, budget)
        assert cost(found) <= budget * (1 + 1e-6)
        most = max(np.prod(t) for t in product(grid, repeat=3) if cost(np.array(t)) <= budget)
        assert np.prod(found) >= most * 0.999
    assert best_rates(known, orders, cost(np.ones(3))) == pytest.approx([1, 1, 1])
