"""An adapter's arithmetic: vectors of rows, blocks of centres, soft tokens of means."""

import pytest
import torch
from torch import Tensor

from tasks.adapters.adapter import Adapter, lens_of
from tests.tiny_model import tiny_model
from tests.unit.tasks.systems.summaries.planted import adapter


def rows(count: int = 9, width: int = 32, seed: int = 2) -> Tensor:
    return torch.randn((count, width), generator=torch.Generator().manual_seed(seed)) * 5


def test_one_centre_is_the_projection_of_what_is_left_without_the_mean() -> None:
    made, hidden = adapter(), rows()
    expected = (hidden - made.space.mean).double() @ made.space.projection.double().T
    torch.testing.assert_close(made.represent(hidden).double(), expected, rtol=1e-4, atol=1e-4)


def test_a_projection_never_lengthens_a_vector() -> None:
    made, hidden = adapter(centres=3), rows(50)
    assert (made.represent(hidden).norm(dim=1) <= (hidden - made.space.mean).norm(dim=1) * (1 + 1e-5)).all()


def test_each_row_stands_in_the_block_of_its_nearest_centre_alone() -> None:
    """So the concatenated vector has the norm of one vector, and its mean costs what one mean costs."""
    one, three, hidden = adapter(), adapter(centres=3), rows(40)
    projected = (hidden - three.space.mean) @ three.space.projection.T
    nearest = torch.cdist(projected, three.space.centres).argmin(1)
    blocks = three.represent(hidden).view(40, 3, 6)
    assert set(nearest.tolist()) == {0, 1, 2}
    for row, block in enumerate(nearest.tolist()):
        torch.testing.assert_close(blocks[row, block], projected[row], rtol=1e-4, atol=1e-4)
        others = [other for other in range(3) if other != block]
        assert (blocks[row, others] == 0).all()
    assert one.represent(hidden).shape == (40, 6)


def test_of_equally_near_centres_the_first_is_taken() -> None:
    made = adapter(centres=3)
    made.space.centres[:] = made.space.centres[0]
    blocks = made.represent(rows()).view(9, 3, 6)
    assert (blocks[:, 0] != 0).all()
    assert (blocks[:, 1:] == 0).all()


@pytest.mark.parametrize("centres", [1, 4])
@pytest.mark.parametrize("width", [32, 37])
def test_a_rows_vector_is_its_own_to_the_bit(centres: int, width: int) -> None:
    """Wherever the row stands, whoever stands beside it, and however its memory is laid out."""
    made, hidden = adapter(centres=centres, width=width), rows(17, width)
    alone = torch.cat([made.represent(hidden[n : n + 1].clone()) for n in range(17)])
    order = torch.randperm(17, generator=torch.Generator().manual_seed(4))
    changed = hidden.clone()
    changed[5] = 1e4
    wide = torch.zeros((17, width + 3))
    wide[:, 1:-2] = hidden
    assert torch.equal(made.represent(hidden), alone)
    assert torch.equal(made.represent(hidden[order]), alone[order])
    assert torch.equal(made.represent(hidden[3:]), alone[3:])
    assert torch.equal(made.represent(wide[:, 1:-2]), alone)
    others = torch.arange(17) != 5
    assert torch.equal(made.represent(changed)[others], alone[others])
    assert not torch.equal(made.represent(changed)[5], alone[5])


def test_a_row_that_is_not_valid_or_not_finite_contributes_nothing() -> None:
    """Zero itself is no null vector here: the mean is subtracted from it."""
    made, hidden = adapter(), rows()
    hidden[1, 3], hidden[2, 0], hidden[4] = torch.nan, torch.inf, 0.0
    valid = torch.ones(9, dtype=torch.bool)
    valid[4] = False
    found = made.represent(hidden, valid)
    assert (found[[1, 2, 4]] == 0).all()
    assert (found[[0, 3, 5, 6, 7, 8]] != 0).all()
    assert (made.represent(hidden)[4] != 0).all()
    assert made.represent(hidden[:0]).shape == (0, 6)


def test_soft_tokens_follow_from_the_mean_alone() -> None:
    made = adapter()
    mean = torch.linspace(-1, 1, 6)
    found = made.soft_tokens(mean)
    assert found.shape == (3, 32)
    assert found.dtype == torch.float32
    assert torch.equal(found, made.soft_tokens(mean.double()))
    assert not torch.equal(found, made.soft_tokens(mean * 2))
    assert not found.requires_grad


def test_with_much_noise_the_mean_counts_for_nothing_and_with_none_for_all() -> None:
    made = adapter()
    low, high = torch.full((6,), -3.0), torch.full((6,), 3.0)

    def apart(noise: float) -> float:
        return float((made.soft_tokens(low, noise) - made.soft_tokens(high, noise)).abs().max())

    assert apart(0.0) > apart(1.0) > apart(10.0) > 0
    assert apart(1e6) < 1e-4 * apart(0.0)
    assert made.soft_tokens(high, 1e30).isfinite().all()


def test_shrinkage_is_the_best_linear_estimate() -> None:
    """Of a group's mean of known variance, seen through noise of known variance: t^2 / (t^2 + s^2)."""
    space = adapter().space
    variance, noise = space.group_variance, 0.7
    kept = variance / (variance + noise**2)
    seen = space.shrink((space.group_mean + 1)[None], torch.tensor([noise]))
    torch.testing.assert_close(seen.scaled[0], kept / variance.mean().sqrt())
    torch.testing.assert_close(seen.directions[0, 0], kept @ space.projection)
    torch.testing.assert_close(seen.trust[0], (kept * variance).sum() / variance.sum())
    clean, drowned = space.shrink(torch.zeros(2, 6), torch.tensor([0.0, 1e9])).trust.tolist()
    assert (clean, drowned) == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-12))


def test_the_last_soft_tokens_are_words_while_the_mean_can_be_trusted() -> None:
    made = adapter(tokens=5, words=2)
    assert made.lens is not None
    mean = torch.linspace(-2, 2, 6)
    said = made.words(mean)
    table = tiny_model().decoder.get_input_embeddings().weight
    assert len(set(said)) == 2
    torch.testing.assert_close(made.soft_tokens(mean)[3:], table[list(said)].detach(), rtol=1e-4, atol=1e-6)
    drowned = made.soft_tokens(mean, 1e9)[3:]
    torch.testing.assert_close(drowned, made.decoder.unsaid * made.decoder.scale, rtol=1e-4, atol=1e-6)
    between = made.soft_tokens(mean, 1.0)[3:]
    assert not torch.allclose(between, drowned, atol=1e-3)
    assert adapter().words(mean) == ()


def test_a_word_is_named_by_the_direction_of_its_row() -> None:
    lens = lens_of(tiny_model())
    places = torch.tensor([3, 40])
    found = lens.words(lens.rows[places] * 100, torch.zeros(32), 3)
    assert found[:, 0].tolist() == places.tolist()
    assert found.shape == (2, 3)


def test_every_centre_has_words_of_its_own() -> None:
    made = adapter(centres=3, tokens=8, words=5)
    mean = torch.randn(18, generator=torch.Generator().manual_seed(3))
    blocks = mean.clone().view(3, 6)
    blocks[1] += 5
    before, after = made.words(mean), made.words(blocks.flatten())
    assert len(before) == 5
    assert (before[:2], before[4:]) == (after[:2], after[4:])
    assert before[2:4] != after[2:4]


def unfit(made: Adapter) -> list[tuple[object, ...]]:
    return [(torch.zeros(5),), (torch.zeros(1, 6),), (torch.full((6,), torch.nan),), (torch.zeros(6), -1.0),
            (torch.zeros(6), float("nan"))]  # fmt: skip


def test_what_is_no_mean_is_refused() -> None:
    made = adapter()
    for arguments in unfit(made):
        with pytest.raises(ValueError, match="mean"):
            made.soft_tokens(*arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="hidden states"):
        made.represent(torch.zeros(2, 31))
