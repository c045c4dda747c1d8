"""Registry of attacks by name: an `AttackInput` in, an `MetricResult` out.

A figure that cannot be measured is null: without released texts, held-out people, canaries or labels.
An attack whose tool is missing is left out of a suite by `possible`, so that no figure is mistaken for a measurement.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tasks.attacks.attack_input import AttackInput
from tasks.attacks.attribute_inference import Person, infer
from tasks.attacks.canaries import appearing, chance_of_guess, exposures
from tasks.attacks.extraction import NEAR, PATTERNS, Extracted, extraction, find_copies
from tasks.attacks.membership_inference import (
    METHOD,
    SOURCE,
    Separation,
    UnigramModel,
    embedding_scores,
    likelihood_ratio_scores,
    overlap_scores,
    separation,
)
from tasks.evaluation import intervals
from tasks.evaluation.registry import Need
from tasks.values.results import MetricResult, MetricValue, rounded


@dataclass(frozen=True)
class Attack:
    """An attack, before it is made.

    Attributes:
        name: its stable name.
        compute: the attack, and the judgement.
        needs: the public tools it works with.
    """

    name: str
    compute: Callable[[AttackInput], MetricResult]
    needs: frozenset[Need] = frozenset()


def membership_embedding(scene: AttackInput) -> MetricResult:
    """Measure membership by similarity of embeddings (URANIA, appendix F)."""
    embed, texts = scene.embed, scene.texts
    if embed is None:
        raise ValueError("this attack needs an embedder")
    result = _judged(scene, lambda candidates: embedding_scores(embed, texts, candidates))
    how = f"the largest cosine similarity to a released text, embedder {embed.name}"
    return _membership(scene, "membership_embedding", result, how, "Liu et al., URANIA, 2025, appendix F")


def membership_likelihood(scene: AttackInput) -> MetricResult:
    """Measure membership by likelihood: under the release's own language, against a public model."""
    score, texts = scene.score, scene.texts
    if score is None:
        raise ValueError("this attack needs a public model")
    result = _judged(scene, lambda candidates: likelihood_ratio_scores(score, texts, candidates))
    how = "log-likelihood ratio per word of a bigram model of the released texts and the public model"
    return _membership(scene, "membership_likelihood", result, how, "after Meeus et al., arXiv 2502.14921")


def membership_overlap(scene: AttackInput) -> MetricResult:
    """Measure membership by copies: the share of a text's four-word runs that were released."""
    texts = scene.texts
    result = _judged(scene, lambda candidates: overlap_scores(texts, candidates))
    how = "the share of a text's four-word runs that stand in a released text"
    return _membership(scene, "membership_overlap", result, how, "containment: Broder, SEQUENCES 1997")


def canary_membership(scene: AttackInput) -> MetricResult:
    """Planted canaries against held-out ones of the same form: membership without any other difference."""
    planted = scene.canaries.planted if scene.canaries else ()
    held_out = scene.canaries.held_out if scene.canaries else ()
    language = UnigramModel(scene.texts)
    sides = ([language.log_likelihood(canary.sentence) for canary in side] for side in (planted, held_out))
    result = separation(*sides) if scene.texts else _nothing(len(planted), len(held_out))
    how = "log-likelihood of a canary's sentence under a bigram model of the released texts, planted against held out"
    return _membership(scene, "canary_membership", result, how, "Meeus et al., arXiv 2502.14921")


def canary_exposure(scene: AttackInput) -> MetricResult:
    """Exposure of planted secrets, and how many of them appear."""
    values: dict[str, MetricValue] = dict.fromkeys(
        ("exposure_mean", "exposure_mean_low", "exposure_mean_high", "exposure_max", "held_out_exposure_mean")
    )
    canaries, texts = scene.canaries, scene.texts
    planted, held_out = (canaries.planted, canaries.held_out) if canaries else ((), ())
    if canaries and texts:
        language = UnigramModel(texts)
        bits, others = (
            exposures(
                side, canaries.alternatives, lambda sentences: [language.log_likelihood(text) for text in sentences]
            )
            for side in (planted, held_out)
        )
        low, high = intervals.of_mean(bits) or (None, None)
        values |= {
            "exposure_mean": _mean(bits),
            "exposure_mean_low": rounded(low, 3),
            "exposure_mean_high": rounded(high, 3),
            "exposure_max": rounded(max(bits), 3),
            "held_out_exposure_mean": _mean(others),
        }
    among = len(canaries.alternatives) if canaries else 0
    values |= {"exposure_possible": rounded(math.log2(among + 1), 3) if among else None}
    values |= {"exposure_by_chance": rounded(chance_of_guess(among), 3) if among else None}
    for name, side in (("planted", planted), ("held_out", held_out)):
        exact, near = appearing(side, texts)
        values |= {name: len(side), f"{name}_appearing": exact, f"{name}_nearly_appearing": near}
    return MetricResult(
        name="canary_exposure",
        exposure=scene.exposure,
        values=values,
        source="Carlini et al., 'The Secret Sharer', USENIX Security 2019, section 4",
        method="log2(1 + alternatives) - log2(rank) by the log-likelihood under a bigram model of the released texts,"
        f" ties half; {intervals.BOOTSTRAP}; near: three of a secret's four words in a row",
        line=_canary_line(values),
    )


def identifier_extraction(scene: AttackInput) -> MetricResult:
    """E-mail addresses, telephone numbers and, with a tagger, names of the corpus that were released."""
    members, nonmembers = scene.fair
    values: dict[str, MetricValue] = {}
    sentences = []
    for kind in (*PATTERNS, "names"):
        inside, outside = (_identifiers(scene, kind, texts) for texts in (members, nonmembers))
        result = extraction(inside, outside, scene.texts) if scene.texts else None
        measured = result is not None and (kind != "names" or scene.tag is not None)
        values |= _shares(kind, result.corpus if result and measured else None)
        values |= _shares(f"held_out_{kind}", result.held_out if result and measured else None)
        if result and measured and result.corpus.of:
            sentences.append(
                f"{kind} {result.corpus.appearing} of {result.corpus.of}, held out {result.held_out.appearing}"
            )
    tagger = f"names by {scene.tag.name}" if scene.tag else "no names without a tagger"
    return MetricResult(
        name="identifier_extraction",
        exposure=scene.exposure,
        values=values,
        source="extraction recall: Lukas et al., 'Analyzing Leakage of Personally Identifiable Information in Language"
        " Models', IEEE S&P 2023; intervals: Clopper and Pearson, 1934",
        method="share of the different identifiers of as many members as non-members that stand in a released text as"
        f" whole words; identifiers of both sides are left out; addresses and numbers by their form, {tagger}",
        line="; ".join(sentences) or "no identifiers to look for",
    )


def attribute_inference(scene: AttackInput) -> MetricResult:
    """Return the label of a person, guessed from the released texts nearest to the first half of that person's text."""
    embed = scene.embed
    if embed is None:
        raise ValueError("this attack needs an embedder")
    inside = _people(scene.members, scene.member_labels)
    others = _people(scene.nonmembers, scene.nonmember_labels)
    public, outside = others[::2], others[1::2]
    result = infer(embed, scene.texts, public, inside, outside)
    values: dict[str, MetricValue] = {
        **_shares("right", result.members if result else None),
        **_shares("held_out_right", result.held_out if result else None),
        **_shares("commonest_right", result.commonest if result else None),
    }
    line = "nothing to infer: no labels, or no texts"
    if result and result.members.share is not None:
        held_out = "none" if result.held_out.share is None else f"{result.held_out.share:.3f}"
        line = f"right for {result.members.share:.3f} of members, {held_out} of held-out people"
    return MetricResult(
        name="attribute_inference",
        exposure=scene.exposure,
        values=values,
        source="the held-out people as the level of imputation: Jayaraman and Evans, CCS 2022; intervals: Clopper and"
        " Pearson, 1934",
        method="the label of the public people nearest to the three released texts nearest to the first half of a"
        f" person's text; embedder {embed.name}; the level is what it gets right about held-out people",
        line=line,
    )


def replay(scene: AttackInput) -> MetricResult:
    """Compare released texts that copy members with those that share as much with non-members by chance."""
    texts = scene.texts
    values: dict[str, MetricValue] = {"texts": len(texts)}
    copies = [find_copies(texts, documents) for documents in scene.fair]
    for name, each in zip(("", "held_out_"), copies, strict=True):
        measured = bool(texts and scene.fair[0])
        values |= {f"{name}longest_run": max(each.runs) if measured else None}
        values |= {f"{name}largest_share": rounded(max(each.shares), 4) if measured else None}
        values |= _shares(f"{name}near_copies", each.near if measured else None)
    measured = values["longest_run"] is not None
    return MetricResult(
        name="replay",
        exposure=scene.exposure,
        values=values,
        source="longest shared run: Lee et al., 'Deduplicating Training Data', ACL 2022; containment: Broder 1997;"
        " intervals: Clopper and Pearson, 1934",
        method=f"a near copy has at least {NEAR:g} of its four-word runs in one document; as many members as"
        " non-members; words are case folded",
        line=f"longest run {values['longest_run']} words (non-members {values['held_out_longest_run']}),"
        f" {values['near_copies']} near copies (non-members {values['held_out_near_copies']})"
        if measured
        else "not measurable: texts, members and non-members are needed",
    )


ATTACKS: Mapping[str, Attack] = {
    attack.name: attack
    for attack in (
        Attack("membership_embedding", membership_embedding, frozenset({"embedder"})),
        Attack("membership_likelihood", membership_likelihood, frozenset({"model"})),
        Attack("membership_overlap", membership_overlap),
        Attack("canary_membership", canary_membership),
        Attack("canary_exposure", canary_exposure),
        Attack("identifier_extraction", identifier_extraction),
        Attack("attribute_inference", attribute_inference, frozenset({"embedder"})),
        Attack("replay", replay),
    )
}


def possible(scene: AttackInput) -> tuple[Attack, ...]:
    """Return the attacks whose tools the scene has."""
    tools: dict[Need, object] = {"model": scene.score, "embedder": scene.embed, "tagger": scene.tag}
    return tuple(attack for attack in ATTACKS.values() if all(tools[need] is not None for need in attack.needs))


def _judged(scene: AttackInput, scores: Callable[[list[str]], list[float]]) -> Separation:
    if not scene.texts:
        return _nothing(len(scene.members), len(scene.nonmembers))
    scored = scores([*scene.members, *scene.nonmembers])
    return separation(scored[: len(scene.members)], scored[len(scene.members) :])


def _nothing(members: int, nonmembers: int) -> Separation:
    """Return a separation without figures, for a run without a release."""
    return Separation(members, nonmembers, None, None, separation([], []).rates)


def _membership(scene: AttackInput, name: str, result: Separation, how: str, source: str) -> MetricResult:
    return MetricResult(
        name=name,
        exposure=scene.exposure,
        values=result.values(),
        source=f"{source}; {SOURCE}",
        method=f"{how}; {METHOD}",
        line=result.line() if scene.texts else "no texts",
    )


def _identifiers(scene: AttackInput, kind: str, texts: list[str]) -> set[str]:
    if kind != "names":
        return {each for text in texts for each in PATTERNS[kind](text)}
    mentions = scene.tag(texts) if scene.tag and texts else ()
    return {mention.text for text in mentions for mention in text if mention.kind == "PERSON"}


def _people(texts: Sequence[str], labels: Sequence[str]) -> list[Person]:
    """Return the people of one side that have a label; the attacker knows the first half of each text's words."""
    if not labels:
        return []
    halves = (" ".join(read[: (len(read) + 1) // 2]) for read in (text.split() for text in texts))
    return [Person(half, label) for half, label in zip(halves, labels, strict=True) if label and half]


def _mean(bits: Sequence[float]) -> str | None:
    return rounded(math.fsum(bits) / len(bits), 3) if bits else None


def _canary_line(values: Mapping[str, MetricValue]) -> str:
    if values["exposure_mean"] is None:
        return "nothing was planted" if not values["planted"] else "no texts"
    return (
        f"mean exposure {values['exposure_mean']} of {values['exposure_possible']} bits (by chance"
        f" {values['exposure_by_chance']}), {values['planted_appearing']} of {values['planted']} secrets appear"
    )


def _shares(name: str, extraction: Extracted | None) -> dict[str, MetricValue]:
    low, high = (extraction.interval if extraction else None) or (None, None)
    return {
        name: extraction.appearing if extraction else None,
        f"{name}_of": extraction.of if extraction else None,
        f"{name}_share": rounded(extraction.share if extraction else None, 4),
        f"{name}_share_low": rounded(low, 4),
        f"{name}_share_high": rounded(high, 4),
    }
