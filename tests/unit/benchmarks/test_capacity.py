"""The model of scheduler and ledger agrees with what theory knows of simple cases."""

import math
from collections.abc import Iterator
from random import Random
from types import ModuleType

import pytest

SCRIPTS = ("ledger.capacity", "ledger.capacity_model")
SERVICE = 0.01


@pytest.fixture(scope="module")
def model(bench: dict[str, ModuleType]) -> ModuleType:
    return bench["ledger.capacity_model"]


def poisson(rate: float, many: int, chance: Random) -> Iterator[float]:
    now = 0.0
    for _ in range(many):
        now += chance.expovariate(rate)
        yield now


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
@pytest.mark.parametrize(("kind", "factor"), [("exponential", 1.0), ("fixed", 0.5)])
def test_an_open_queue_waits_as_pollaczek_and_khinchine_say(
    model: ModuleType, load: float, kind: str, factor: float
) -> None:
    """M/M/1: load/(1-load) services; M/D/1: half of that. The seed is fixed, so this holds always or never."""
    chance = Random(7)
    found = model.mean_wait(poisson(load / SERVICE, 150_000, chance), getattr(model, kind)(SERVICE), chance)
    assert found == pytest.approx(factor * SERVICE * load / (1 - load), rel=0.05)


@pytest.mark.parametrize("workers", [5, 50, 200])
def test_a_closed_queue_serves_as_the_finite_source_says(model: ModuleType, workers: int) -> None:
    """Below, near and beyond what the ledger can do: 50 workers that think 50 services fill it about once."""
    step = 50 * SERVICE
    fleet = model.Fleet(workers, step, 1, draws=1, rounds=2000, load_s=0, poll_s=0)
    writes = model.Writes(model.fixed(0.0), model.exponential(SERVICE), model.fixed(0.0))
    found = model.Simulation(fleet, writes, 1, seed=3).run(600)
    assert found.arms == pytest.approx(model.finite_source(workers, step, SERVICE), rel=0.03)
    assert found.load == pytest.approx(found.arms * SERVICE, rel=0.03)
    assert found.drawing == pytest.approx(found.arms * step / workers, rel=0.01)
    assert found.drawing + found.waiting == pytest.approx(1, abs=0.01)


def test_what_is_not_drawing_is_accounted_for(model: ModuleType) -> None:
    """Without queues: loading, and on average half a look of the poller, against the rounds of a run."""
    fleet = model.Fleet(40, 0.01, 100, draws=100, rounds=20, load_s=5, poll_s=2)
    writes = model.Writes(*[model.fixed(0.0)] * 3)
    found = model.Simulation(fleet, writes, 4, seed=1).run(4000)
    run = 20 * 100 * 0.01
    assert found.drawing == pytest.approx(run / (run + 5 + 1), rel=0.03)
    assert (found.wait_p99, found.load, found.forfeited) == (0, 0, 0)


def test_failures_lose_the_instalment_and_the_repair(model: ModuleType) -> None:
    fleet = model.Fleet(200, 0.01, 100, draws=100, rounds=1000, load_s=0, poll_s=0, mtbf_s=100, repair_s=20)
    writes = model.Writes(*[model.fixed(0.0)] * 3)
    found = model.Simulation(fleet, writes, 1, seed=1).run(3000)
    lost = -math.expm1(-1 / 100)  # the share of instalments, of a second each, that a failure meets
    assert found.forfeited == pytest.approx(lost, rel=0.05)
    assert found.drawing == pytest.approx((1 - lost) / lost / (100 + 20), rel=0.02)


def test_shards_share_the_load(model: ModuleType) -> None:
    fleet = model.Fleet(200, 0.01, 10, draws=100, rounds=20, load_s=0, poll_s=0)
    writes = model.Writes(*[model.fixed(SERVICE)] * 3)
    one, eight = (model.Simulation(fleet, writes, ledgers, seed=2).run(200) for ledgers in (1, 8))
    assert one.load > 0.99
    assert one.drawing == pytest.approx(0.1 / SERVICE / 200, rel=0.1)  # the ledger is full: 100 arms a second
    assert eight.drawing > 4 * one.drawing
    assert one.wait_p99 >= one.wait_p50 > eight.wait_p50


def test_the_same_seed_says_the_same(model: ModuleType) -> None:
    fleet = model.Fleet(30, 0.02, 16, mtbf_s=900, jitter=0.1)
    writes = model.Writes(model.fixed(0.02), model.measured([0.001, 0.002, 0.05]), model.fixed(0.01))
    first, again, other = (model.Simulation(fleet, writes, 2, seed).run(3000) for seed in (5, 5, 6))
    assert first == again != other


def test_tables_and_figure_are_of_kept_simulations(
    bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    capacity = bench["ledger.capacity"]
    monkeypatch.setattr(capacity, "SHORTEST", 60.0)
    monkeypatch.setattr(capacity, "ARMS", 100)
    monkeypatch.setattr(capacity, "INSTALMENTS", (32, 128))
    fleet = capacity.replace(capacity.GPUS, workers=50, rounds=2, load_s=1, poll_s=2)
    lines = list(capacity.simulations(fleet, [2.0, 400.0], [1.0]))
    assert lines == list(capacity.simulations(fleet, [2.0, 400.0], [1.0])), "the seed is fixed"
    assert len(lines) == 2 * 2 * 4 + 3
    (_, _, *rows) = capacity.simulation_table(lines)
    assert [row.split(" | ")[:3] for row in rows] == [
        ["| 2 ms", "32", "1"],
        ["| 2 ms", "32", "2"],
        ["| 2 ms", "128", "1"],
    ]
    (_, _, fast, slow) = capacity.ledgers_table(lines)
    assert fast == "| 2 ms | 1 | 1 |"
    assert slow.startswith("| 400 ms | more | ")  # 31 arms a second, of which sixteen ledgers make 40, unevenly
    (_, _, *failing) = capacity.failures_table(lines)
    assert [row.split(" | ")[1] for row in failing] == ["32", "128", "512"]
    panels = capacity.draw(lines).axes
    assert [panel.get_title() for panel in panels] == ["2 ms a write", "400 ms a write", "", ""]
    shares = [line["drawing"] for line in lines if (line["write_ms"], line["ledgers"]) == (400.0, 16)]
    assert list(panels[1].lines[3].get_ydata()) == pytest.approx([100 * share for share in shares])
