"""The parts of a training: the space, the frozen network, prompts, settings, the curve."""

from xml.etree import ElementTree

import pytest
import torch
from pydantic import ValidationError

from tasks.adapters.adapter import clipped, fit_space, word_tokens
from tasks.adapters.store import reading_pieces, writing_pieces
from tasks.adapters.training.data import TrainingSettings, default_wording
from tasks.adapters.training.frozen_model import Line, freeze
from tasks.adapters.training.loop import curve
from tests.refusals import refusal
from tests.tiny_model import tiny_model, tiny_network
from tests.unit.tasks.systems.summaries.school import lessons, network, order


def states(groups: int = 5, each: int = 8, width: int = 12) -> list[torch.Tensor]:
    """Hidden states with a large mean, that differ along three directions."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn((width, width), generator=generator))[0]
    scales = torch.tensor([5.0, 3.0, 2.0] + [0.01] * (width - 3))
    return [100 + (torch.randn((each, width), generator=generator) * scales) @ basis.T for _ in range(groups)]


def test_the_space_holds_what_public_states_differ_by() -> None:
    found, clip_norm = fit_space(states(), 3, 1, 0)
    torch.testing.assert_close(found.projection @ found.projection.T, torch.eye(3), rtol=1e-5, atol=1e-5)
    every = torch.cat(states())
    centred = every - every.mean(0)
    kept = (centred @ found.projection.T).square().sum() / centred.square().sum()
    assert kept > 0.999
    norms = found.represent(every).norm(dim=1)
    assert float((norms > clip_norm).float().mean()) == pytest.approx(0.5, abs=0.06)
    assert clip_norm < 10 < float(every.norm(dim=1).min())


def test_the_groups_average_and_spread_are_those_of_clipped_means() -> None:
    found, clip_norm = fit_space(states(), 3, 1, 0)
    means = torch.stack([clipped(found.represent(rows), clip_norm).mean(0) for rows in states()])
    torch.testing.assert_close(found.group_mean, means.mean(0))
    torch.testing.assert_close(found.group_variance, means.var(0, correction=0))
    assert (clipped(torch.randn(50, 4) * 9, 2.0).norm(dim=1) <= 2 * (1 + 1e-6)).all()


def test_more_than_documents_can_show_is_refused() -> None:
    two = [torch.randn((2, 12), generator=torch.Generator().manual_seed(1))]
    for dimensions, centres, what in ((2, 1, "Dimensions"), (1, 3, "Centres")):
        with refusal("TooFewDocuments", match=what):
            fit_space(two, dimensions, centres, 0)
    same = [torch.ones((4, 12))]
    with refusal("TooFewDocuments", match="at most 0"):
        fit_space(same, 1, 1, 0)
    assert fit_space(two, 0, 1, 0)[0].projection.shape == (12, 12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_frozen_network_has_the_loss_and_the_slope_of_the_plain_one(dtype: torch.dtype) -> None:
    """Packed products and padding change nothing but last bits."""
    lines = [each.line for each in lessons(order()).learned[:3]]
    lines[1] = Line(lines[1].pieces, lines[1].target[:1])
    soft = torch.randn((3, 2, 32), generator=torch.Generator().manual_seed(3)) * 0.3
    plain, _ = tiny_network(seed=7, spread=0.2)
    found, slope = _loss(freeze(tiny_network(seed=7, spread=0.2)[0], torch.device("cpu"), dtype), lines, soft)
    expected = torch.zeros(())
    tracked = soft.clone().requires_grad_()
    for each, line in zip(tracked, lines, strict=True):
        embedded = plain.get_input_embeddings()
        before, after = (embedded(torch.tensor(part)) for part in (line.pieces.prefix, line.pieces.suffix))
        words = embedded(torch.tensor(line.target))
        logits = plain(inputs_embeds=torch.cat([before, each, after, words])[None]).logits[0]
        scored = logits[-len(line.target) - 1 : -1]
        expected = expected + torch.nn.functional.cross_entropy(scored, torch.tensor(line.target), reduction="sum")
    expected.backward()  # type: ignore[no-untyped-call]
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    assert found == pytest.approx(float(expected.detach()), rel=tolerance)
    assert tracked.grad is not None
    assert float((slope - tracked.grad).norm() / tracked.grad.norm()) < tolerance


def _loss(frozen: object, lines: list[Line], soft: torch.Tensor) -> tuple[float, torch.Tensor]:
    tracked = soft.clone().requires_grad_()
    loss, tokens = frozen.loss(tracked, lines)  # type: ignore[attr-defined]
    assert tokens == sum(len(line.target) for line in lines)
    loss.backward()
    assert tracked.grad is not None
    return float(loss.detach()), tracked.grad


def test_a_target_ends_with_the_token_that_ends_a_text_unless_it_was_cut() -> None:
    end = tiny_model().tokenizer.eos_token_id
    assert lessons(order()).learned[0].line.target[-1] == end
    cut = lessons(order(max_summary_tokens=3)).learned[0].line.target
    assert len(cut) == 3
    assert end not in cut
    assert network().dtype == torch.float32


def test_the_prompts_are_public_text_around_a_place() -> None:
    tokenizer, wording = tiny_model().tokenizer, default_wording("a summary", labelled=True)
    reading, writing = (make(tokenizer, wording, "pans") for make in (reading_pieces, writing_pieces))
    read, written = tokenizer.decode(reading.around((70,))), tokenizer.decode(writing.around((70,)))
    assert read.endswith("assistant\nTitle:")
    assert "pans" not in read
    assert "wrote about this: pans" in written
    assert "Write a summary." in written
    assert wording.labelled
    assert not default_wording(labelled=False).labelled


def test_the_words_of_a_vocabulary_begin_with_its_mark_and_are_in_small_letters() -> None:
    more = [f"Ġ{'abcdefghij'[n % 10] * (3 + n // 10)}" for n in range(600)]
    vocabulary = ["<s>", "Ġred", "Ġof", "ĠRed", "red", "Ġr3d", "▁blue", "Ġ...", *more]

    class Plain:
        def __init__(self) -> None:
            self.added_tokens_decoder: dict[int, object] = {}
            self.all_special_ids = (0,)

        def __len__(self) -> int:
            return len(vocabulary)

        def convert_ids_to_tokens(self, number: int) -> str:
            return vocabulary[number]

        def decode(self, numbers: list[int]) -> str:
            return "".join(vocabulary[number] for number in numbers).replace("Ġ", " ")

    assert word_tokens(Plain(), 10**6)[:3] == [1, 6, 8]
    assert word_tokens(Plain(), 8) == [1, 2, 3, 4, 5, 6]


def test_a_wording_that_cannot_be_is_refused() -> None:
    tokenizer, wording = tiny_model().tokenizer, default_wording(labelled=False)
    with refusal("ControlTokens"):
        reading_pieces(tokenizer, wording.model_copy(update={"reading_opening": "Title<|end|>"}), None)
    with refusal("ReferenceMissing"):
        writing_pieces(tokenizer, wording.model_copy(update={"private": "Write."}), None)


@pytest.mark.parametrize(
    "wrong",
    [{"noise_least": 2}, {"noise_least": 0}, {"soft_tokens": 0}, {"words": 16}, {"precision": "int8"}, {"held_out": 1}],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TrainingSettings.model_validate(wrong)


def test_every_setting_is_part_of_the_order() -> None:
    digests = {order(**{name: value}).digest for name, value in (("seed", 1), ("steps", 7), ("held_out", "0.3"))}
    assert len({*digests, order().digest, order(name="b").digest}) == 5


def test_the_curve_shows_every_look() -> None:
    course = [{"step": 0, "clean": 5.0, "noisy": 5.5}, {"step": 10, "clean": 3.0, "noisy": 4.0, "training": 4.5}]
    drawn = ElementTree.fromstring(curve(course, 10, "Training of <x> & y"))
    names = [element.tag.rpartition("}")[2] for element in drawn.iter()]
    assert names.count("polyline") == 3
    lines = [e.attrib["points"].split() for e in drawn.iter() if e.tag.endswith("polyline")]
    assert [len(points) for points in lines] == [1, 2, 2]
    clean, noisy = lines[1:]
    assert float(clean[0].split(",")[1]) > float(noisy[0].split(",")[1])
    assert float(clean[1].split(",")[1]) > float(clean[0].split(",")[1])
    assert "held out, without noise: 3.000" in "".join(drawn.itertext())
