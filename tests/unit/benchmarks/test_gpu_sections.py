"""What the GPU kit measures: broken twins are found, devices that this machine lacks are played, and the roofline."""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.inference.model_families import shape_named
from tasks.inference.isolation.check import IsolationCheck, RowsNotIsolated
from tasks.inference.network.language_model import LanguageModel
from tests.unit.tasks.inference.conformance import Conformance

CONCERNS = ("benchmarks/gpu",)

SCRIPTS = (
    "gpu.environment", "gpu.isolation", "gpu.networks", "gpu.training_and_embedding", "gpu.reports.roofline",
    "gpu.decoding_plan", "gpu.section", "gpu.speed", "gpu.step_profile", "gpu.conformance_tests", "gpu.vllm_baseline",
)  # fmt: skip

pytestmark = pytest.mark.dear


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As the kit's small version has it: threads of tiny products only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def here(bench: dict[str, ModuleType], tmp_path: Path) -> Any:
    """A small bench on the CPU."""
    section = bench["gpu.section"]
    record = section.Record("sweep", "cpu", "code")
    return section.Bench("cpu", True, time.monotonic() + 900, tmp_path, record, tmp_path / "sweep.json")


def rows_of(here: Any) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in here.record.rows}


class Coupled(LanguageModel):
    """A broken twin: at five rows, and there alone, the last row's logits follow the first's."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        found = super().logits(hidden)
        if len(found) == 5:
            found[-1] += found[0] * 1e-6
        return found


def test_the_sweep_finds_a_difference_at_one_number_of_rows(
    bench: dict[str, ModuleType], here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolation, make = bench["gpu.isolation"], bench["gpu.isolation"].random_model

    def coupled(*given: Any, **options: Any) -> LanguageModel:
        model = make(*given, **options)
        return Coupled(**{name: getattr(model, name) for name in model.__dataclass_fields__})

    monkeypatch.setattr(isolation, "PRECISIONS", ("float32",))
    monkeypatch.setattr(isolation, "random_model", coupled)
    isolation.sweep(here)
    verdicts = {name: row["passed"] for name, row in rows_of(here).items()}
    assert verdicts == {f"float32, {rows} rows": rows != 5 for rows in range(1, 7)}
    assert (
        rows_of(here)["float32, 6 rows"]["other bits than with fewer rows"] is True
    )  # its fifth row has its own again


def test_a_shape_that_is_not_isolated_is_named_and_others_are_asked(
    bench: dict[str, ModuleType], here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = IsolationCheck.head

    def refuse(check: IsolationCheck, rows: int) -> None:
        if rows == 8:
            raise RowsNotIsolated("cuda", "8 rows,  head", "float32")
        head(check, rows)

    monkeypatch.setattr(bench["gpu.isolation"], "PRECISIONS", ("float32",))
    monkeypatch.setattr(IsolationCheck, "head", refuse)
    bench["gpu.isolation"].shapes(here)
    rows = rows_of(here)
    failed = [name for name, row in rows.items() if row["passed"] is False]
    assert failed == ["SmolLM2-135M, float32, 8 rows: head"]
    assert rows[failed[0]]["not isolated"] == "8 rows,  head"
    assert rows["SmolLM2-135M, float32, 8 rows: 256 candidates"]["passed"] is True


def test_a_precision_that_a_device_lacks_is_refused_by_name(bench: dict[str, ModuleType], here: Any) -> None:
    from tasks.inference.catalogue.precision import PrecisionMissing

    isolation = bench["gpu.isolation"]

    def make(model: str, device: str, precision: str, **_: Any) -> None:
        if precision == "int8":
            raise PrecisionMissing("int8", "cuda", "torch has no product of quantised rows for it")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isolation, "random_model", make)
        assert list(isolation._precisions(here, "sweep")) == ["float32", "bfloat16"]
    assert "no product of quantised rows" in rows_of(here)["sweep, int8"]["refused"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("found", "passed"),
    [
        (Conformance(1e-5, 8.0, True), True),
        (Conformance(2e-4, 8.0, True), False),
        (Conformance(float("nan"), 8.0, True), False),
        (Conformance(1e-5, 8.0, False), False),
    ],
)
def test_a_family_must_be_close_and_isolated(
    bench: dict[str, ModuleType], here: Any, monkeypatch: pytest.MonkeyPatch, found: Conformance, passed: bool
) -> None:
    monkeypatch.setattr(bench["gpu.conformance_tests"], "conformance_of", lambda family, device: found)
    bench["gpu.conformance_tests"].families(here)
    assert [row["passed"] for row in here.record.rows] == [passed] * 2


RESULTS = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"><failure message="assert 1 == 2&#10;more"/></testcase>
<testcase name="c"><skipped/></testcase><testcase name="d"/></testsuite></testsuites>"""


def test_tests_are_counted(bench: dict[str, ModuleType], tmp_path: Path) -> None:
    counts, file = bench["gpu.conformance_tests"].counts, tmp_path / "pytest.xml"
    file.write_text(RESULTS)
    found = counts(file, on_device=False)
    assert (found["tests that passed"], found["tests that failed"], found["tests that were skipped"]) == (2, 1, 1)
    assert found["failures"] == {"b": "assert 1 == 2"}
    file.write_text(RESULTS.replace('<failure message="assert 1 == 2&#10;more"/>', ""))
    assert counts(file, on_device=False)["passed"] is True
    assert counts(file, on_device=True)["passed"] is False  # skipped, though there is a device
    file.write_text(
        RESULTS.split('<testcase name="b">')[0]
        + """<testcase name="c"><skipped
        message="needs two CUDA devices of one kind; this machine has 1"/></testcase></testsuite></testsuites>"""
    )
    found = counts(file, on_device=True)
    assert (found["passed"], found["tests that were skipped"], found["tests that need two devices"]) == (True, 0, 1)
    file.write_text("<testsuites><testsuite/></testsuites>")
    assert counts(file, on_device=False)["passed"] is False


def test_the_marked_tests_are_found(bench: dict[str, ModuleType]) -> None:
    files = bench["gpu.conformance_tests"].marked_files(Path(__file__).resolve().parents[2])
    assert {Path(file).name for file in files} >= {
        "test_clipping.py",
        "test_integer_table.py",
        "test_utility_scores.py",
    }
    assert all((Path(__file__).resolve().parents[3] / file).is_file() for file in files)


def test_fewer_rows_than_wanted_are_told_and_measured_without_the_question(
    bench: dict[str, ModuleType], here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that keeps four rows apart and no more."""
    layers = IsolationCheck.layers

    def refuse(check: IsolationCheck, rows: int, queries: int) -> None:
        if rows > 4:
            raise RowsNotIsolated("cuda", f"{rows} rows", "float32")
        layers(check, rows, queries)

    speed = bench["gpu.speed"]
    monkeypatch.setattr(IsolationCheck, "layers", refuse)
    speed.compare(here, replace(speed.SMALL, references=(3,)))
    rows = rows_of(here)
    assert (rows["engine, 3 references"]["rows wanted"], rows["engine, 3 references"]["rows a pass"]) == (8, 4)
    without = rows["engine without the question, 3 references"]
    assert (without["rows wanted"], without["rows a pass"]) == (8, 8)
    assert rows["vLLM, 3 references"]["not compared"] == "vLLM is not installed"
    assert IsolationCheck.layers is refuse


def test_ratios_are_of_tokens_a_second(bench: dict[str, ModuleType], here: Any) -> None:
    for name, rate in (("engine", 240.0), ("plain loop", 20.0), ("vLLM", 300.0)):
        here.row(f"{name}, 7 references", lambda rate=rate: {"tokens/s": rate})
    found = bench["gpu.speed"].ratios(here, 7)
    assert found == {"of the plain loop": 12.0, "of plain generate": "not measured", "of vLLM": 0.8}


def test_generate_takes_half_as_many_generations_where_memory_ends(
    bench: dict[str, ModuleType], here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = bench["gpu.speed"]
    asked: list[int] = []

    def together(here: Any, plan: Any, network: Any, references: int, generations: int, tokens: int) -> int:
        asked.append(generations)
        if generations > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        time.sleep(0.01 * tokens)
        return tokens

    monkeypatch.setattr(speed, "_together", together)
    found = speed.generate_row(here, speed.SMALL, None, 7, 9)
    assert found["generations"] == 2
    assert asked[:3] == [9, 4, 2]
    assert found["tokens/s"] == pytest.approx(2000 / found["step ms"])


def test_a_step_has_its_parts(bench: dict[str, ModuleType], here: Any) -> None:
    split, networks = bench["gpu.step_profile"], bench["gpu.networks"]
    model = networks.random_model(networks.SMOLLM2, "cpu", "float32", small=True)
    found = split.shares(here, split.SMALL, model)
    parts = {name: value for name, value in found.items() if name not in ("generations", "step ms")}
    assert {"layers, public rows ms", "layers, private rows ms", "head, public rows ms", "draw ms"} <= set(parts)
    assert sum(parts.values()) == pytest.approx(found["step ms"])
    assert all(value > 0 for value in parts.values())


def test_launches_waits_and_kernels_are_counted(bench: dict[str, ModuleType]) -> None:
    def event(name: str, device: str = "DeviceType.CPU", us: float = 1.0) -> SimpleNamespace:
        return SimpleNamespace(name=name, device_type=device, time_range=SimpleNamespace(elapsed_us=lambda: us))

    events = [event("cudaLaunchKernel")] * 6 + [event("cudaMemcpyAsync")] * 2 + [event("aten::mm")] * 4
    events += [event("cudaStreamSynchronize")] * 2 + [event("gemm", "DeviceType.CUDA", 3000.0)] * 2
    found = bench["gpu.step_profile"].counted(events, steps=2)
    assert (found["launches"], found["copies"], found["operations"], found["waits"]) == (3, 1, 2, 1)
    assert found["device ms"] == 3.0
    assert found["kernels, ms"] == {"gemm": 3.0}


def test_a_device_is_described(bench: dict[str, ModuleType], here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that is played: the rows that only CUDA has, and what waits for it or asks it for its memory."""
    properties = SimpleNamespace(name="a GPU", major=9, minor=0, multi_processor_count=132)
    waited: list[bool] = []
    answers = {
        "get_device_properties": lambda number: properties,
        "mem_get_info": lambda *_: (2**36, 2**37),
        "device_count": lambda: 1,
        "synchronize": lambda: waited.append(True),
        "max_memory_allocated": lambda: 3 * 2**30,
        "reset_peak_memory_stats": lambda: waited.append(False),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    environment, networks = bench["gpu.environment"], bench["gpu.networks"]
    assert environment._device() == {
        "device": "a GPU", "capability": "9.0", "multiprocessors": 132, "devices": 1, "GiB": 128.0, "GiB free": 64.0,
    }  # fmt: skip
    told = "580.1, 1980 MHz, 2619 MHz, 700.00 W, Disabled\n"
    monkeypatch.setattr(environment.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=told))
    assert environment._driver()["power.limit"] == "700.00 W"
    networks.synchronise("cuda:0")
    networks.reset_peak("cuda:0")
    assert waited == [True, False]
    assert networks.peak_memory("cuda:0") == 3.0
    assert networks.peak_memory("cpu") is None
    networks.synchronise("cpu")
    assert waited == [True, False]


def test_tf32_and_bfloat16_sums_are_found_out(
    bench: dict[str, ModuleType], here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken twins: inputs cut to TF32's ten bits, and sums that are rounded to bfloat16 on their way."""
    environment = bench["gpu.environment"]
    assert environment._float32_error(here)["passed"]
    assert environment._bfloat16_error(here)["passed"]
    numbers = environment._numbers

    def in_tf32(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        cut = [(part.view(torch.int32) & ~0x1FFF).view(torch.float32) for part in (left, right)]
        return cut[0] @ cut[1]

    def in_parts(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(left.shape[0], right.shape[1], dtype=torch.bfloat16)
        for start in range(0, left.shape[1], 64):
            total += left[:, start : start + 64] @ right[start : start + 64]
        return total

    left, right = numbers(here)
    assert environment._relative_error(in_tf32(left, right), left, right) > environment._TF32_ERROR / 16
    left, right = left.bfloat16(), right.bfloat16()
    assert environment._relative_error(in_parts(left, right), left, right) > environment._BFLOAT16_ERROR


def test_vllm_is_asked_for_the_same_rows(
    bench: dict[str, ModuleType],
    here: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """vLLM is played: its class takes what its documentation names, and a token of all rows takes 0.02 s."""
    vllm_baseline = bench["gpu.vllm_baseline"]
    plan = bench["gpu.decoding_plan"].Plan(bench["gpu.networks"].LLAMA_1B, (7,))
    made: dict[str, Any] = {}

    class LLM:
        def __init__(self, **options: Any) -> None:
            made.update(options)

        def generate(self, prompts: list[Any], how: Any, use_tqdm: bool) -> None:
            made["prompts"] = prompts
            time.sleep(0.02 * how.max_tokens)

    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=LLM, SamplingParams=SimpleNamespace))
    folder = vllm_baseline.write_configuration(tmp_path / "shape", plan)
    assert json.loads((folder / "config.json").read_text())["hidden_size"] == 2048
    monkeypatch.setattr(sys, "argv", ["vllm_baseline", str(folder), "--rows", "16", "--prompt", "336"])
    vllm_baseline.main()
    assert json.loads(capsys.readouterr().out)["step"] > 0.015
    assert made["load_format"] == "dummy"
    assert [len(prompt["prompt_token_ids"]) for prompt in made["prompts"]] == [336] * 16
    modes: list[str] = []

    def run(command: list[str], **options: Any) -> SimpleNamespace:
        modes.append(options["env"].get("VLLM_BATCH_INVARIANT", "0"))
        assert command[4:6] == ["--rows", "16"]
        return SimpleNamespace(returncode=0, stdout='INFO\n{"step": 0.5}\n', stderr="")

    monkeypatch.setattr(vllm_baseline, "installed", lambda name: "0.12")
    monkeypatch.setattr(vllm_baseline.subprocess, "run", run)
    found = vllm_baseline.measure(here, plan, 7, 2)
    assert (modes, found["rows"]) == (["0", "1"], 16)
    assert found["tokens/s"] == found["batch-invariant tokens/s"] == 4.0
    failure = SimpleNamespace(returncode=1, stdout="", stderr="no kernel")
    monkeypatch.setattr(vllm_baseline.subprocess, "run", lambda *_, **__: failure)
    with pytest.raises(RuntimeError, match="status 1: no kernel"):
        vllm_baseline.measure(here, plan, 7, 2)


def test_sizes_of_the_roofline_are_those_of_the_networks(bench: dict[str, ModuleType]) -> None:
    roofline = bench["gpu.reports.roofline"]
    for shape in (roofline.SMOLLM2, roofline.LLAMA_1B, roofline.LLAMA_8B):
        found = shape_named(shape.name)
        assert shape.linear_parameters == found.linear_parameters
        assert shape.head_parameters == found.head_parameters
        assert shape.column_bytes == found.column_bytes("bfloat16")
        assert shape.weight_bytes == found.weight_bytes("bfloat16", packed=False)
        assert shape.home_bytes == found.home_bytes("bfloat16")


def test_the_roofline_takes_the_longer_of_two_times(bench: dict[str, ModuleType]) -> None:
    """A network small enough for sums by hand: 8 numbers in linear layers, a head of 3 x 1."""
    roofline = bench["gpu.reports.roofline"]
    shape = roofline.Shape("hand", 1, 1, 1, 1, 1, 1, 3, tied=False)
    assert shape.linear_parameters == 2 * (1 + 1) + 3 == 7
    work = roofline.Work(references=2, reference_tokens=4, new_tokens=6, prompt=1)
    slow_memory = roofline.Accelerator("memory", 1e3, 1.0, 1e9, 1e9)
    parts = roofline.parts_of_step(shape, slow_memory, work, 5, 3)
    columns = 2 * (1 + 4 + 3) + 1 + 3
    assert parts["layers, public rows"] == parts["layers, private rows"] == 14
    assert parts["attention"] == 4 * columns * 5
    assert (parts["head"], parts["candidates"]) == (4 * 3, 12 * 10 * roofline.CANDIDATES)
    slow_products = roofline.Accelerator("products", 1e3, 1e9, 1.0, 2.0)
    parts = roofline.parts_of_step(shape, slow_products, work, 5, 3)
    assert parts["layers, public rows"] == 14 * 5
    assert parts["layers, private rows"] == 14 * 10
    assert (parts["head"], parts["candidates"]) == (2 * 3 * 5 / 2, 2 * 10 * roofline.CANDIDATES / 2)
    assert roofline.step_seconds(shape, slow_products, work, 5) == sum(parts.values())
    fit = roofline.generations_that_fit(shape, roofline.Accelerator("", 1100.0, 1, 1, 1), work)
    assert fit == int((1100 - shape.weight_bytes) * 0.75 / (4 * work.columns(6)))
    assert roofline.generations_that_fit(shape, roofline.Accelerator("", 1.0, 1, 1, 1), work) == 0


def test_the_measured_device_is_read_from_its_record(bench: dict[str, ModuleType], here: Any) -> None:
    roofline = bench["gpu.reports.roofline"]
    assert roofline.measured(here.folder) is None
    bench["gpu.environment"].measure(here)
    here.record.write(here.folder / "environment.json")
    found = roofline.measured(here.folder)
    assert min(found.bandwidth, found.bfloat16, found.float32) > 0
    plan = replace(bench["gpu.decoding_plan"].Plan("SmolLM2-135M", (7,)))
    told = bench["gpu.speed"]._roofline(replace(here, small=False), plan, 7, 4, step=1.0)
    assert told["share of the roofline"] == pytest.approx(told["roofline ms"] / 1000)
