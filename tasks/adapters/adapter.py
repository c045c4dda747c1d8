"""Adapter of summaries: projection of hidden states, their noisy mean to soft tokens, and the logit lens beside it.

Logit lens: words for a mean hidden state, without training, by the model's own head. A hidden state at the end of a
reading prompt represents the next token, which the head predicts. The head's output for a whole mean is how most titles
begin; its output for the DIFFERENCE from the public mean is specific to the titles of this group. So it can name words
that no public example has. (Reading inner states through the head is known as the logit lens: nostalgebraist 2020,
"interpreting GPT: the logit lens". Here it is post-processing of a noisy mean.)

Adapter network: maps hidden states to vectors for averaging, and their noisy mean to soft tokens.

    vectors = adapter.represent(rows.values, rows.valid)      # [N, c*r], each row by itself
    mean = <clipped, averaged over a public n, noised: tasks.mechanisms.vectors.noisy_mean>
    table = adapter.soft_tokens(mean, noise)                  # [m, D], post-processing

After the one-shot mechanism of "Differentially Private Summarization with Large Language Models", §4.2, which averages
whole hidden states and maps the mean by a perceptron. Our changes, all of them fitted to public data alone:

* **Fewer coordinates.** Noise of standard deviation s in each of d coordinates has norm s * sqrt(d); hidden states of
  documents differ along few directions. So they are centred (their public mean has five times the norm of their
  differences, and would use up the clip norm) and projected onto the first r principal directions.
* **Several centres.** With c > 1, a unit's vector stands in the block of its nearest public centre, so that
  different statements are not averaged into one that nobody made. A unit still has ONE vector of the same norm, so the
  concatenated mean costs what one mean costs.
* **Shrinkage.** The level of the noise is public. Each coordinate of the noisy mean is pulled to its public average by
  t^2 / (t^2 + s^2), t^2 being the variance of that coordinate among public groups: the best linear estimate. With much
  noise the adapter gives an output for an average group, instead of nonsense.
* **Words.** Some soft tokens are the embeddings of words for the shrunk mean, by the model's own head (`Lens`): a
  perceptron trained on a few dozen groups cannot name a subject that none of them had.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from models_db.errors import UsageError
from tasks.adapters.metadata import WHOLE, AdapterMeta
from tasks.analysis.clustering.kmeans import k_means
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.prompt_rendering import control_tokens

_LENGTH_POWER: Final = 0.5
"""Power of a row's length that divides its score. Without it rare tokens, which have long rows, would always win; with
power 1, vague words would."""

_PRIOR_SHARE: Final = 0.15
"""Weight of the output for the public mean: it excludes words that begin no title."""

_LEAST_WORDS: Final = 500
"""Least number of whole words; a vocabulary with fewer is used completely."""


@dataclass(frozen=True, eq=False)
class Lens:
    """Rows of a model's head and embeddings for words; all float32 on the CPU.

    Attributes:
        tokens: int64 [W], the vocabulary's words.
        rows: [W, D], their rows of the head, minus the mean row.
        embeddings: [W, D], their input embeddings.
    """

    tokens: Tensor
    rows: Tensor
    embeddings: Tensor

    def words(self, directions: Tensor, mean: Tensor, count: int) -> Tensor:
        """Return the likeliest words of each direction, likeliest first.

        Args:
            directions: float32 [B, D], differences from `mean`.
            mean: float32 [D], the public mean of hidden states.

        Returns:
            int64 [B, count], places in `tokens`.
        """
        scores = (directions + _PRIOR_SHARE * mean) @ self.rows.T
        lengths = self.rows.norm(dim=1).clamp_min(1e-6) ** _LENGTH_POWER
        places: Tensor = (scores / lengths).topk(count, dim=1).indices
        return places


def lens_of(model: LanguageModel) -> Lens:
    """Return the lens of a language model: lowercase words, or all text where its vocabulary has few."""
    tokens = torch.tensor(word_tokens(model.tokenizer, model.vocabulary))
    rows = model.head_weight.detach().float().cpu()[tokens]
    table = model.decoder.get_input_embeddings().weight.detach()
    embeddings = table[tokens.to(table.device)].float().cpu()
    return Lens(tokens, rows - rows.mean(0), embeddings)


def word_tokens(tokenizer: Any, vocabulary: int) -> list[int]:
    """Return ids of tokens that are whole words: they begin one (the marks of byte-level BPE and of SentencePiece), and
    have three letters or more, none of them a capital. In a vocabulary with few of those, every token of letters."""
    control = control_tokens(tokenizer)
    texts = [(number, tokenizer.convert_ids_to_tokens(number)) for number in range(min(vocabulary, len(tokenizer)))]
    text_tokens = [(number, token) for number, token in texts if number not in control and isinstance(token, str)]
    words = [
        number for number, token in text_tokens if re.fullmatch("[Ġ▁][^\\W\\d_]{3,}", token) and token[1:].islower()
    ]
    if len(words) >= _LEAST_WORDS:
        return words
    return [number for number, _ in text_tokens if any(sign.isalpha() for sign in tokenizer.decode([number]))]


_LEAST_VARIANCE: Final = 1e-12


@dataclass(frozen=True, eq=False)
class Space:
    """Space of units' vectors; all tensors are float32 on the CPU and fitted to public hidden states.

    Attributes:
        mean: [D], subtracted from a hidden state.
        projection: [r, D], orthonormal rows.
        centres: [c, r].
        group_mean, group_variance: [c * r], of the mean vectors of public groups.
    """

    mean: Tensor
    projection: Tensor
    centres: Tensor
    group_mean: Tensor
    group_variance: Tensor

    @torch.inference_mode()
    def represent(self, hidden: Tensor, valid: Tensor | None = None) -> Tensor:
        """Implement `Adapter.represent`."""
        rows = hidden.detach().to("cpu", torch.float32)
        valid_rows = rows.isfinite().all(1) if valid is None else valid.cpu() & rows.isfinite().all(1)
        vectors = torch.zeros((len(rows), self.centres.numel()))
        # One buffer for all rows: a product's last bits may depend on where in memory a row begins.
        centred = torch.empty_like(self.mean)
        for number in torch.nonzero(valid_rows).flatten().tolist():
            torch.sub(rows[number], self.mean, out=centred)
            self._place(torch.mv(self.projection, centred), vectors[number])
        return vectors

    def _place(self, projected: Tensor, row: Tensor) -> None:
        """Write float32 [r] into the block of its nearest centre; of equally near ones the first."""
        r = len(projected)
        block = int((self.centres - projected).square().sum(1).argmin())
        row[block * r : (block + 1) * r] = projected

    def shrink(self, means: Tensor, noise: Tensor) -> "ShrunkMeans":
        """Shrink noisy means of groups by their noise.

        Args:
            means: float32 [B, c * r], noisy.
            noise: float32 [B], the standard deviation of the noise in each entry.
        """
        variance = self.group_variance.clamp_min(_LEAST_VARIANCE)
        kept = variance / (variance + noise.square()[:, None])
        shrunk = (means - self.group_mean) * kept
        blocks = shrunk.view(len(means), *self.centres.shape)
        trust = (kept * variance).sum(1) / variance.sum()
        return ShrunkMeans(shrunk / variance.mean().sqrt(), blocks @ self.projection, trust)


@dataclass(frozen=True, eq=False)
class ShrunkMeans:
    """Noisy means of B groups, shrunk towards the public average of groups.

    Attributes:
        scaled: float32 [B, c * r], about 1 in size.
        directions: float32 [B, c, D], for each centre the difference from the public average as a hidden state.
        trust: float32 [B], the share of groups' variance that the noise leaves: 1 without noise.
    """

    scaled: Tensor
    directions: Tensor
    trust: Tensor


class Decoder(nn.Module):
    """Perceptron from the shrunk means of B groups to [B, m, D]; where trust is 1, its last `words` rows are words.

    Attributes:
        scale: the root mean square of the model's embeddings, so that its output begins as large as they are.
        unsaid: float32 [words, D], the replacement of a word where trust is 0; in between, a mixture.
    """

    def __init__(self, inputs: int, hidden: int, soft_tokens: int, words: int, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs + 1, hidden)
        self.second = nn.Linear(hidden, (soft_tokens - words) * width)
        self.unsaid = nn.Parameter(torch.zeros((words, width)))
        self.register_buffer("scale", torch.ones(()))
        self.scale: Tensor
        self.words = words
        self._shape = (soft_tokens - words, width)

    def forward(self, features: ShrunkMeans, mean: Tensor, lens: Lens | None) -> Tensor:
        """Return soft tokens, float32 [B, m, D].

        Args:
            mean: float32 [D], the public mean of hidden states.
            lens: of the model; needed if there are words.
        """
        trust = features.trust[:, None]
        inner = nn.functional.gelu(self.first(torch.cat([features.scaled, trust], dim=1)))
        learned: Tensor = (self.second(inner) * self.scale).view(-1, *self._shape)
        if not self.words or lens is None:
            return learned
        word_embeddings = lens.embeddings[words_of(features, mean, lens, self.words)]
        mixed = trust[..., None] * word_embeddings + (1 - trust[..., None]) * self.unsaid * self.scale
        return torch.cat([learned, mixed], dim=1)


def words_of(features: ShrunkMeans, mean: Tensor, lens: Lens, count: int) -> Tensor:
    """Return int64 [B, count]: places in the lens; the first centres name one more where `count` is not divisible."""
    centres = features.directions.shape[1]
    shares = [count // centres + (number < count % centres) for number in range(centres)]
    return torch.cat([lens.words(features.directions[:, n], mean, share) for n, share in enumerate(shares)], dim=1)


@dataclass(frozen=True, eq=False)
class Adapter:
    """A frozen, public function from hidden states to soft tokens.

    Attributes:
        lens: of the model that it is used with; needed if it has words.
    """

    meta: AdapterMeta
    space: Space
    decoder: Decoder
    lens: Lens | None = None

    def represent(self, hidden: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return the vector of each row: its projection, in the block of its nearest centre, zeros elsewhere.

        Each row by itself, bit for bit the same at any position and beside any other rows (PRIVACY §4.2 point 1): a
        product of its own for every row, of one shape, from one place in memory, on the CPU. Clipping is left to the
        mechanism.

        Args:
            hidden: [N, D], last hidden states of the reading prompt (`adapters.prompts.reading_pieces`).
            valid: bool [N]; a row that is not valid, or not finite, contributes exactly zero.

        Returns:
            float32 [N, c * r] on the CPU.
        """
        if hidden.dim() != 2 or hidden.shape[1] != self.meta.width:
            raise ValueError(f"hidden states must be [N, {self.meta.width}], not {list(hidden.shape)}")
        return self.space.represent(hidden, valid)

    @torch.inference_mode()
    def soft_tokens(self, mean: Tensor, noise: float = 0.0) -> Tensor:
        """Return the soft tokens of one group: post-processing of its noisy mean.

        Args:
            mean: [c * r], the noisy mean of the group's vectors.
            noise: the standard deviation of the noise in each of its entries, that is sigma / n; a public number.

        Returns:
            float32 [m, D] on the CPU, finite.
        """
        tokens: Tensor = self.decoder(self._shrunk_means(mean, noise), self.space.mean, self.lens)[0]
        return tokens

    @torch.inference_mode()
    def words(self, mean: Tensor, noise: float = 0.0) -> tuple[int, ...]:
        """Return the token ids of the words among the soft tokens, for people; arguments as `soft_tokens`."""
        if self.lens is None:
            return ()
        places = words_of(self._shrunk_means(mean, noise), self.space.mean, self.lens, self.meta.words)[0]
        return tuple(self.lens.tokens[places].tolist())

    def _shrunk_means(self, mean: Tensor, noise: float) -> ShrunkMeans:
        if tuple(mean.shape) != (self.meta.vector_width,):
            raise ValueError(f"a mean must be [{self.meta.vector_width}], not {list(mean.shape)}")
        batch = mean.detach().to("cpu", torch.float32)[None]
        if not batch.isfinite().all() or not 0 <= noise < float("inf"):
            raise ValueError("a mean and its noise must be finite")
        return self.space.shrink(batch, torch.tensor([noise]))


SPACE_TENSORS: Final = ("mean", "projection", "centres", "group_mean", "group_variance")


def tensors_of(space: Space, decoder: Decoder) -> dict[str, Tensor]:
    """Return all stored tensors, by name."""
    fitted = {name: getattr(space, name) for name in SPACE_TENSORS}
    learned = {f"decoder.{name}": value for name, value in decoder.state_dict().items()}
    return {name: value.detach().float().contiguous() for name, value in (fitted | learned).items()}


def shapes_of(meta: AdapterMeta) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor that an adapter with this meta data has."""
    r, c, width, vector = meta.dimensions, meta.centres, meta.width, meta.vector_width
    return {
        "mean": (width,),
        "projection": (r, width),
        "centres": (c, r),
        "group_mean": (vector,),
        "group_variance": (vector,),
        "decoder.scale": (),
        "decoder.unsaid": (meta.words, width),
        "decoder.first.weight": (meta.hidden_units, vector + 1),
        "decoder.first.bias": (meta.hidden_units,),
        "decoder.second.weight": ((meta.soft_tokens - meta.words) * width, meta.hidden_units),
        "decoder.second.bias": ((meta.soft_tokens - meta.words) * width,),
    }


def from_tensors(meta: AdapterMeta, tensors: dict[str, Any], lens: Lens | None) -> Adapter:
    """Build an adapter from stored tensors; the shapes are those of `shapes_of`.

    Args:
        lens: of its model; needed if it has words.
    """
    decoder = Decoder(meta.vector_width, meta.hidden_units, meta.soft_tokens, meta.words, meta.width)
    decoder.load_state_dict({name: tensors[f"decoder.{name}"] for name in decoder.state_dict()})
    space = Space(**{name: tensors[name] for name in SPACE_TENSORS})
    return Adapter(meta, space, decoder.eval().requires_grad_(False), lens)


CLIP_QUANTILE: Final = 0.5
"""Quantile of the norms of public vectors. The median: half of the units are shortened a bit, and the noise, which is
proportional to the clip norm, is not sized for the longest."""


def _too_few_documents(what: str, requested: int, most: int) -> UsageError:
    return UsageError(
        f"{what.capitalize()} of {requested} cannot be fitted: the groups to learn from allow at most {most}.",
        f"Request fewer {what}, or train on more documents.",
        {"what": what, "asked": requested, "most": most},
        code="TooFewDocuments",
    )


def fit_space(sets: Sequence[Tensor], dimensions: int, centres: int, seed: int) -> tuple[Space, float]:
    """Fit a space, and the clip norm for it.

    Args:
        sets: for each public group, the hidden states of its documents, float32 [n, D]; at least one row together.
        dimensions: r, or WHOLE.
        centres: c.
        seed: of k-means.

    Raises:
        TooFewDocuments.
    """
    states = torch.cat(list(sets))
    mean, projection = _directions(states, dimensions)
    projected = torch.stack([torch.mv(projection, row - mean) for row in states])
    if centres > (different := len({tuple(row) for row in projected.tolist()})):
        raise _too_few_documents("centres", centres, different)
    middles = projected.new_zeros((1, len(projection)))
    if centres > 1:
        middles = torch.from_numpy(k_means(projected.double().numpy(), centres, seed)).float()
    blank = torch.zeros(middles.numel())
    space = Space(mean, projection, middles, blank, blank)
    clip_norm = _rounded(float(projected.norm(dim=1).quantile(CLIP_QUANTILE)))
    means = torch.stack([clipped(space.represent(rows), clip_norm).mean(0) for rows in sets if len(rows)])
    spread = means if len(means) > 1 else clipped(space.represent(states), clip_norm)
    return Space(mean, projection, middles, means.mean(0), spread.var(0, correction=0)), clip_norm


def clipped(vectors: Tensor, clip_norm: float) -> Tensor:
    """Scale each row to a norm of at most `clip_norm`, as the mechanism does on its grid."""
    norms = vectors.norm(dim=1, keepdim=True).clamp_min(1e-30)
    shortened: Tensor = vectors * (clip_norm / norms).clamp_max(1.0)
    return shortened


def _directions(states: Tensor, dimensions: int) -> tuple[Tensor, Tensor]:
    """Return the mean [D] and the principal directions [r, D] of the rows of `states`; each direction's largest entry
    is positive, so that they do not depend on the library."""
    if dimensions == WHOLE:
        return torch.zeros(states.shape[1]), torch.eye(states.shape[1])
    wide = states.double()
    mean = wide.mean(0)
    _, sizes, directions = torch.linalg.svd(wide - mean, full_matrices=False)
    most = int((sizes > 1e-9 * sizes.max().clamp_min(1e-30)).sum())
    if dimensions > most:
        raise _too_few_documents("dimensions", dimensions, most)
    principal = directions[:dimensions]
    signs = principal.gather(1, principal.abs().argmax(1, keepdim=True)).sign()
    return mean.float(), (principal * signs).float().contiguous()


def _rounded(value: float) -> float:
    """Round to three significant digits, for a card."""
    return max(float(f"{value:.3g}"), 1e-6)
