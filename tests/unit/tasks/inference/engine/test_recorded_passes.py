"""Passes that are recorded and replayed have the bits of plain ones; what cannot be recorded goes on without."""

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tasks.inference.catalogue.devices import CPU
from tasks.inference.engine.attention import aligned
from tasks.inference.engine.engine import Engine, SessionOpening
from tasks.inference.engine.isolation import IsolationCheck, RowsNotIsolated
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.recorded_passes import PassRecorder, RecordedPasses
from tasks.inference.engine.rows import Ring, RowBatch, visible_counts
from tasks.inference.engine.shapes import Sizes
from tasks.inference.kernels.kernel_choice import PACKED, PLAIN, KernelOrder
from tests.unit.tasks.inference.families import READ, adopted, network_of
from tests.unit.tasks.inference.fixtures import Twins
from tests.unit.tasks.inference.operation_recording import OperationRecording
from tests.unit.tasks.inference.rows_at_work import PRIVATE, PUBLIC, text
from tests.unit.tasks.inference.traffic import Diary, crowd, differing, drive

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/inference/engine",)


def driven(model: LanguageModel, recording: OperationRecording | None = None) -> tuple[Diary, PassRecorder]:
    recorder = PassRecorder(CPU, recording)
    return drive(Engine(model, 4, recorder=recorder), crowd(), chosen=False), recorder


def same(one: Diary, other: Diary) -> bool:
    public = all(torch.equal(torch.stack(one.public[n]), torch.stack(other.public[n])) for n in one.public)
    return public and not differing(one.rows, other.rows)


@pytest.mark.slow_except("Llama", "Gemma 3", "Cohere 2", "GPT-2", "Falcon", "Phi-3")
@pytest.mark.parametrize("family", READ)
def test_replays_have_the_bits_of_plain_passes_in_every_family(family: str) -> None:
    model, recording = adopted(network_of(*READ[family])), OperationRecording()
    plain, _ = driven(model)
    replayed, recorder = driven(model, recording)
    assert same(plain, replayed)
    assert recorder.records, "its pass could not be recorded"
    assert recording.replays > 3 * recording.recorded > 0


def test_a_column_that_is_frozen_in_a_recording_is_seen(tiny: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: a replay writes the column that was recorded, for ever."""
    run = RecordedPasses.run

    def frozen(passes: RecordedPasses, key: Any, compute: Any, *inputs: Tensor) -> Tensor:
        *others, column = inputs
        if column.shape != (1,):
            return run(passes, key, compute, *inputs)  # a prompt's
        return run(passes, key, lambda *read: compute(*read, column), *others)

    plain, _ = driven(tiny.model)
    monkeypatch.setattr(RecordedPasses, "run", frozen)
    assert same(plain, driven(tiny.model)[0])  # without a recording it changes nothing
    assert not same(plain, driven(tiny.model, OperationRecording())[0])


def test_a_hidden_state_in_other_memory_is_seen(tiny: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: positions move to other memory at every step, and a replay reads the old ones."""
    step = Ring._step

    def moving(ring: Ring, *arguments: Any) -> Tensor:
        ring._positions = ring._positions.clone()
        return step(ring, *arguments)

    plain, _ = driven(tiny.model)
    monkeypatch.setattr(Ring, "_step", moving)
    assert not same(plain, driven(tiny.model, OperationRecording())[0])


@pytest.fixture
def asking(tiny: Twins, monkeypatch: pytest.MonkeyPatch) -> LanguageModel:
    """A network whose pass depends on a value, as a library's may."""
    hidden = LanguageModel.hidden

    def branching(model: LanguageModel, tokens: Tensor, *arguments: Any) -> Tensor:
        if int(tokens.max()) < 0:
            raise AssertionError("no token is negative")
        return hidden(model, tokens, *arguments)

    monkeypatch.setattr(LanguageModel, "hidden", branching)
    return tiny.model


def test_a_pass_that_cannot_be_recorded_is_computed(asking: LanguageModel) -> None:
    plain, _ = driven(asking)
    gave_up, recorder = driven(asking, OperationRecording())
    assert same(plain, gave_up)
    assert not recorder.records


class Rounding(OperationRecording):
    """The broken twin of a recording: its replays have other last bits."""

    def __init__(self, output: list[Tensor]) -> None:
        super().__init__()
        self._output = output

    def __call__(self, compute: Any) -> Any:
        replay = super().__call__(compute)

        def other() -> None:
            replay()
            for tensor in self._output:
                tensor.mul_(1 + 2**-20)

        return other


def test_a_device_whose_replays_have_other_bits_is_found_out_before_a_session(
    tiny: Twins, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs: list[Tensor] = []
    run = RecordedPasses.run

    def watched(passes: RecordedPasses, key: Any, compute: Any, *inputs: Tensor) -> Tensor:
        result = run(passes, key, compute, *inputs)
        outputs[:] = [known.output for known in passes._passes.values()]
        return result

    monkeypatch.setattr(RecordedPasses, "run", watched)
    recorder = PassRecorder(CPU, Rounding(outputs))
    check = IsolationCheck(tiny.model, recorder)
    check.layers(8, 1)  # and the plain passes keep rows apart
    assert not recorder.records


class RoundingAttention(OperationRecording):
    """The broken twin of a recording: replays of attention over so many columns have other last bits."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self._columns = columns

    @torch.inference_mode()
    def _replay(self, calls: Sequence[tuple[Any, Any, Any, Any]]) -> None:
        super()._replay(calls)
        weights = [results for operation, _, _, results in calls if "softmax" in str(operation)]
        if any(each.shape[-1] == self._columns for each in weights):
            calls[-1][1][0].mul_(1 + 2**-20)


class RoundingOneContent(OperationRecording):
    """The broken twin: replays have other last bits for the content that the first of them has in every row."""

    @torch.inference_mode()
    def _replay(self, calls: Sequence[tuple[Any, Any, Any, Any]]) -> None:
        super()._replay(calls)
        output = calls[-1][1][0]
        if self.replays == 1:
            self._content = output[0].clone()
        output[(output == self._content).flatten(1).all(1)] *= 1 + 2**-20


def test_replays_of_attention_are_compared_at_every_number_of_columns(tiny: Twins) -> None:
    recorder = PassRecorder(CPU, RoundingAttention(64))
    check = IsolationCheck(tiny.model, recorder)
    check.layers(8, 1)
    check.attention(8, 1, [32, 48, 80], 80)
    assert recorder.records
    check.attention(8, 1, [64], 80)  # and the plain passes keep rows apart
    assert not recorder.records


def test_replays_are_kept_where_plain_passes_couple_rows_as_well(tiny: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = IsolationCheck._attended

    def coupled(check: IsolationCheck, rows: int, *rest: Any) -> Any:
        for some, contents, mixed in honest(check, rows, *rest):
            yield some, contents, mixed + torch.arange(rows)[:, None, None, None]

    monkeypatch.setattr(IsolationCheck, "_attended", coupled)
    recorder = PassRecorder(CPU, OperationRecording())
    with pytest.raises(RowsNotIsolated):
        IsolationCheck(tiny.model, recorder).attention(8, 1, [48], 64)
    assert recorder.records


@pytest.mark.parametrize("part", ["layers", "attention"])
def test_a_replay_with_other_bits_for_one_content_is_found(tiny: Twins, part: str) -> None:
    recorder = PassRecorder(CPU, RoundingOneContent())
    check = IsolationCheck(tiny.model, recorder)
    if part == "layers":
        check.layers(8, 1)
    else:
        check.attention(8, 1, [48], 64)
    assert not recorder.records


def test_all_passes_are_asked_about_again_where_replays_are_given_up(
    tiny: Twins, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, bool]] = []
    ask = SessionOpening._ask

    def noted(opening: SessionOpening, rows: int) -> None:
        asked.append((len(opening.isolation.tested_shapes), opening.isolation.recorder.records))
        ask(opening, rows)

    monkeypatch.setattr(SessionOpening, "_ask", noted)
    sizes = Sizes.of([PUBLIC], [PRIVATE], 24, 20, 2)
    for recording, expected in (
        (OperationRecording(), [(0, True)]),
        (RoundingAttention(aligned(sizes.private_columns)), [(0, True), (0, False)]),
    ):
        asked.clear()
        Engine(tiny.model, 4, recorder=PassRecorder(CPU, recording)).session(sizes, 2)
        assert asked == expected


def test_a_recording_reads_what_its_inputs_hold_at_each_call() -> None:
    recording = OperationRecording()
    passes = RecordedPasses(PassRecorder(CPU, recording))
    doubled = [float(passes.run("twice", partial(torch.mul, 2), torch.tensor([n]))) for n in (1.0, 2.0, 5.0, 7.0)]
    assert (doubled, recording.recorded, recording.replays) == ([2.0, 4.0, 10.0, 14.0], 1, 3)


def steps_with_exchanged_kernels(model: LanguageModel, recording: OperationRecording | None) -> list[Tensor]:
    """Hidden states of private rows; another session exchanges the kernels after the sixth of nine steps."""
    session = Engine(model, 4, recorder=PassRecorder(CPU, recording)).session(Sizes.of([PUBLIC], [PRIVATE], 8, 9, 2), 1)
    session.enter(0, PUBLIC, PRIVATE, [text(5, 1), text(7, 2)])
    found = []
    for step in range(9):
        found.append(session.private_hidden().values)
        if step == 5:
            assert model.use_next_kernels()
        if step < 8:
            session.advance([40 + step])
    return found


def test_a_replay_is_not_of_the_kernels_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a ring that has recorded its passes would meet others than rows of a new ring, whose passes are plain."""
    hidden = LanguageModel.hidden

    def rounded(model: LanguageModel, *arguments: Any) -> Tensor:
        """Kernels have other last bits than the ones before them."""
        return hidden(model, *arguments) * (1 + 2**-20 * model.kernel_order.number)

    monkeypatch.setattr(LanguageModel, "hidden", rounded)
    found, recording = [], OperationRecording()
    for one in (None, recording):
        model = replace(adopted(network_of(*READ["Llama"])), kernel_order=KernelOrder((PACKED, PLAIN)))
        found.append(steps_with_exchanged_kernels(model, one))
    assert recording.replays
    assert all(map(torch.equal, *found))


def test_passes_over_some_and_over_all_rows_of_a_batch_are_different_ones(tiny: Twins) -> None:
    recording = OperationRecording()
    batch = RowBatch(tiny.model, 8, 16, recorder=PassRecorder(CPU, recording))
    texts, found = [text(6, row) for row in range(8)], []
    for read in (batch.read_long, batch.read) * 3:
        batch.clear()
        found.append(read(texts, 16).clone())
    assert recording.replays
    for states in found[2:]:
        torch.testing.assert_close(states, found[0], rtol=1e-4, atol=1e-4)


def test_what_was_recorded_is_let_go_when_recording_is_given_up() -> None:
    recorder = PassRecorder(CPU, OperationRecording())
    passes = RecordedPasses(recorder)
    for _ in range(3):
        passes.run("twice", partial(torch.mul, 2), torch.ones(1))
    held = weakref.ref(passes._passes["twice"].inputs[0])
    recorder.give_up()
    assert float(passes.run("twice", partial(torch.mul, 2), torch.ones(1))) == 2.0
    gc.collect()
    assert held() is None


@pytest.mark.parametrize(("device", "counts"), [("cpu", [48, 64, 80, 96, 112, 128, 144, 150]), ("cuda", [128, 150])])
def test_a_step_reads_one_of_few_numbers_of_columns(device: str, counts: list[int]) -> None:
    assert visible_counts(40, 150, torch.device(device)) == counts
