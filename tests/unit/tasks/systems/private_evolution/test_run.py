"""Private evolution at work: what is paid when, what a model is told, and what a run goes on from."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from models_db.errors import EnvironmentProblem
from models_db.values.canonical_json import Json
from tasks.corpus.store import SHARDS, Corpus
from tasks.decoding.run_context import ReleaseSteps, RunContext, StepLost
from tasks.inference.backends.text_backend import Completion, Sampling
from tasks.inference.catalogue.model_check import ContextTooLong
from tasks.inference.prompt_spec import PromptSpec
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.systems.private_evolution import PrivateEvolution
from tasks.systems.private_evolution import run as evolution_run
from tasks.systems.private_evolution.schedule import WAYS, Sizes
from tasks.values.results import Generated
from tests.faults import FaultyLetters, waits
from tests.refusals import refusal
from tests.tiny_embedder import Letters
from tests.unit.tasks.systems.asking import ask
from tests.unit.tasks.systems.electing import RHO, Writing, corpus_of, note, running, settings
from tests.unit.tasks.systems.workshop import NOTES, NoCorpus, Workshop
from tests.watched_journal import WatchedJournal

LOUD = 10**22
"""So large a rho that noise hardly matters: what is selected can be told beforehand."""

SECRET = "zanzibarquux"


def in_turn(texts: Sequence[str]) -> Writing:
    return Writing(lambda prompt, number: texts[number % len(texts)])


def made_of(corpus: Any, writing: Writing | None = None, rho: int = RHO, **changes: Any) -> tuple[Generated, Writing]:
    writing = writing or Writing()
    context = Workshop(corpus).context(rng=OS_RANDOM)
    return running(context, settings(**changes), writing, rho).generated(), writing


@pytest.fixture
def vowels(tmp_path: Path) -> Corpus:
    """Thirty units of one sort, ten of another."""
    texts = ["aaaa"] * 30 + ["oooo"] * 10
    return corpus_of(tmp_path, [note(f"unit {number}", f"{text} {SECRET[0]}") for number, text in enumerate(texts)])


def texts_of(made: Generated) -> list[str]:
    return [text.text for text in made.texts]


def test_every_round_is_armed_before_anything_is_read_for_it(vowels: Corpus) -> None:
    workshop = Workshop(vowels)
    writing = Writing(lambda prompt, number: workshop.seen.append(("asked",)) or f"text {number}")  # type: ignore[func-returns-value]
    running(workshop.context(), settings(rounds=3, candidates=2), writing).generated()
    assert [step[:2] for step in workshop.seen] == [
        ("asked",), ("asked",), ("arm", 0), ("each_shard", (0,)), ("asked",), ("arm", 1), ("asked",), ("arm", 2),
    ]  # fmt: skip


def test_what_units_vote_for_is_selected_and_reworded(vowels: Corpus) -> None:
    writing = in_turn(["uuuu", "aaaa", "oooo", "iiii"])
    made, _ = made_of(vowels, writing, LOUD, samples=2, rounds=1, candidates=4)
    assert texts_of(made) == ["aaaa", "oooo"]
    assert made.released == {"candidates_clear_of_noise": "2"}
    again = Writing(lambda prompt, number: ["uuuu", "aaaa", "oooo", "iiii", "aaax", "ooox"][number])
    made, _ = made_of(vowels, again, LOUD, samples=2, rounds=2, variations=2, candidates=4)
    assert texts_of(made) == ["aaaa", "oooo"]
    assert [prompt.rsplit("\n\n")[-1] for prompt in again.asked[1]] == ["aaaa", "oooo"]
    assert all(way in prompt for way, prompt in zip(WAYS, again.asked[1], strict=False))


def test_texts_get_nearer_to_the_units(vowels: Corpus) -> None:
    """A writer who changes one letter at a time: what stays has the letters of the corpus."""

    def answer(prompt: str, number: int) -> str:
        base = prompt.rsplit("\n\n", 1)[-1] if "Rewrite the following text" in prompt else "iuiu"
        place = number % 4
        return base[:place] + "aeiou"[number % 5] + base[place + 1 :]

    made, _ = made_of(vowels, Writing(answer), LOUD, samples=1, rounds=12, variations=8, candidates=8)
    assert set(texts_of(made)[0]) <= {"a", "o"}


def test_a_sample_takes_candidates_as_often_as_units_voted(vowels: Corpus) -> None:
    writing = Writing(
        lambda prompt, number: ["aaaa", "oooo", "uuuu"][number] if number < 3 else prompt.rsplit("\n\n")[-1]
    )
    made, _ = made_of(vowels, writing, LOUD, samples=400, rounds=1, candidates=3, selection="sample")
    found = Counter(texts_of(made))
    assert set(found) == {"aaaa", "oooo"}
    assert found["aaaa"] == pytest.approx(300, abs=60)  # seven standard deviations


def test_prompts_are_as_many_as_were_planned(vowels: Corpus) -> None:
    for changes in ({"samples": 3}, {"samples": 9, "candidates": 4}, {"rounds": 4, "candidates": 7, "variations": 3}):
        _, writing = made_of(vowels, **changes)
        assert sum(map(len, writing.asked)) == Sizes.planned(settings(**changes)).prompts
        _, writing = made_of(vowels, **changes, selection="sample")
        assert sum(map(len, writing.asked)) <= Sizes.planned(settings(**changes, selection="sample")).prompts


def test_the_wording_of_the_request_is_what_a_model_is_told(tmp_path: Path) -> None:
    notes = [note(f"unit {number}", "aaaa", "ab"[number % 2]) for number in range(6)]
    writing = Writing()
    run = running(Workshop(corpus_of(tmp_path, notes)).context(), settings(labels=["a", "b"]), writing)
    spec = PromptSpec("Notes.", system="You know {label}.", public="{description} About {label}.")
    made = replace(run, context=replace(run.context, prompt=spec)).generated()
    assert [how.system for how in writing.told] == ["You know a.", "You know b."] * 2
    assert writing.told[0] == Sampling(8, settings().temperature, 0, "You know a.")
    assert writing.asked[0] == ["Notes. About a."] * 2
    assert [text.label for text in made.texts] == ["a", "b"] == Sizes.planned(run.parameters).labels_of_texts


def test_no_private_word_reaches_a_prompt(tmp_path: Path) -> None:
    words = {word for entry in NOTES for word in entry["text"].split() if len(word) > 6}
    entries = [note(entry["patient_id"], f"{entry['text']} {SECRET}") for entry in NOTES]
    _, writing = made_of(corpus_of(tmp_path, entries), rounds=4, samples=6, selection="sample")
    told = "\n".join([*(prompt for asked in writing.asked for prompt in asked), *(str(how) for how in writing.told)])
    assert SECRET not in told
    assert not [word for word in words if word in told]


# --- what may be there, or not


def test_a_label_without_units_has_its_texts_all_the_same(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [note(f"unit {number}", "aaaa", "a") for number in range(9)])
    for selection in ("rank", "sample"):
        made, _ = made_of(corpus, samples=5, labels=["a", "nobody"], rounds=2, selection=selection)
        assert [text.label for text in made.texts] == ["a"] * 3 + ["nobody"] * 2
        assert len(set(texts_of(made))) == 5


@dataclass(frozen=True)
class Nobody:
    """A corpus without units."""

    def each_shard(self, scheme: Any, name: str, blocks: Any, labels: Any = ()) -> Any:
        return iter([[]] * SHARDS)

    def require_labels(self) -> None:
        """They are there."""


@pytest.mark.parametrize("selection", ["rank", "sample"])
def test_without_units_noise_alone_selects(selection: str) -> None:
    workshop = Workshop(Nobody())
    made = running(workshop.context(), settings(samples=4, selection=selection), Writing()).generated()
    assert len(made.texts) == 4
    assert [step for step in workshop.seen if step[0] == "arm"] == [("arm", 0, 0), ("arm", 1, 0)]


@pytest.mark.parametrize("text", ["always the same", "", " "])
@pytest.mark.parametrize("selection", ["rank", "sample"])
def test_candidates_that_are_all_equal_or_empty_are_candidates(vowels: Corpus, text: str, selection: str) -> None:
    writing = Writing(lambda prompt, number: text)
    made, _ = made_of(vowels, writing, samples=3, rounds=3, selection=selection)
    assert texts_of(made) == [text] * 3
    if not text.strip():  # there is nothing to reword: it is asked for anew
        assert {prompt for asked in writing.asked for prompt in asked} == {"Short notes.\n\nWrite one."}


def test_more_texts_than_candidates_are_rewordings_of_the_best(vowels: Corpus) -> None:
    made, writing = made_of(vowels, in_turn(["uuuu", "aaaa"]), LOUD, samples=7, rounds=1, candidates=2)
    assert texts_of(made)[:2] == ["aaaa", "uuuu"]
    assert [prompt.rsplit("\n\n")[-1] for prompt in writing.asked[-1]] == ["aaaa", "uuuu", "aaaa", "uuuu", "aaaa"]


def test_a_version_without_labels_is_refused_before_anything_is_written(
    vowels: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evolution_run, "load_embedder", lambda *_: Letters())
    workshop, writing, wanted = Workshop(vowels), Writing(), settings(labels=["a", "b"])
    with refusal("LabelsNotKept"):
        PrivateEvolution().generate(
            PrivateEvolution().plan(ask(wanted)), wanted, replace(workshop.context(), outside=writing)
        )
    assert workshop.seen == writing.asked == []


# --- the model of this machine


def test_the_local_model_writes_and_rewords(vowels: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evolution_run, "load_embedder", lambda *_: Letters())
    wanted, system = settings(samples=3, candidates=4, max_new_tokens=12), PrivateEvolution()
    made = system.generate(system.plan(ask(wanted)), wanted, Workshop(vowels).context())
    assert len(set(texts_of(made))) == 3
    assert all(0 < text.tokens <= 12 for text in made.texts)


def test_candidates_are_embedded_again_after_a_temporary_fault_and_no_round_is_paid_twice(
    vowels: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = FaultyLetters()
    monkeypatch.setattr(evolution_run, "load_embedder", lambda *_: embed)
    wanted, system, workshop = settings(max_new_tokens=12), PrivateEvolution(), Workshop(vowels)
    with waits() as seconds:
        made = system.generate(system.plan(ask(wanted)), wanted, workshop.context())
    assert (len(texts_of(made)), seconds) == (2, [10])
    assert [step for step in workshop.seen if step[0] == "arm"] == [("arm", 0, 0), ("arm", 1, 0)]


def test_a_temporary_fault_among_private_units_ends_the_run(vowels: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evolution_run, "load_embedder", lambda *_: FaultyLetters(lambda text: text.endswith(SECRET[0])))
    wanted, system, workshop = settings(max_new_tokens=12), PrivateEvolution(), Workshop(vowels)
    with waits() as seconds, pytest.raises(OSError):
        system.generate(system.plan(ask(wanted)), wanted, workshop.context())
    assert seconds == []
    assert [step for step in workshop.seen if step[0] == "arm"] == [("arm", 0, 0)]


def test_a_model_that_has_no_room_is_refused_before_anything_is_armed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evolution_run, "load_embedder", lambda *_: Letters())
    wanted, system, workshop = settings(max_new_tokens=1020), PrivateEvolution(), Workshop(NoCorpus())
    with pytest.raises(ContextTooLong):
        system.generate(system.plan(ask(wanted)), wanted, workshop.context())
    assert workshop.seen == []


@dataclass
class Narrow(Writing):
    """Reads so many characters at most."""

    room: int = 10**9

    def write(self, prompts: Sequence[str], how: Sampling) -> list[Completion]:
        if (longest := max(map(len, prompts))) > self.room:
            raise ContextTooLong(longest, self.room)
        return super().write(prompts, how)


def test_a_candidate_for_which_there_is_no_room_is_shown_in_part(vowels: Corpus) -> None:
    """Nothing that was paid for is lost because a model wrote more than it can read."""
    whole = Narrow(lambda prompt, number: "".join(f"a{place}" for place in range(200)), room=300)
    made, _ = made_of(vowels, whole, rounds=2)
    shown = [prompt.rsplit("\n\n")[-1] for prompt in whole.asked[1]]
    assert all(0 < len(text) < 300 and texts_of(made)[0].startswith(text) for text in shown)
    none = Narrow(whole.answer, room=40)
    made_of(vowels, none, rounds=2)
    assert set(none.asked[1]) == set(none.asked[0])  # without room for a single character a text is asked for anew


# --- going on


@dataclass
class Diary:
    """What a journal and a ledger would know of an attempt; the steps of the next one."""

    armed: list[int] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)
    released: dict[str, Json] = field(default_factory=dict)
    opened: int = 0

    def context(self, context: RunContext, rounds: int) -> RunContext:
        """The context of an attempt that goes on from here."""
        paid = tuple(int(number in self.armed) for number in range(rounds)) if self.opened else ()
        steps = ReleaseSteps(paid, dict(self.released), frozenset(self.begun))
        journal = WatchedJournal(self._open, drawing=self.begun.add, result=self._keep)
        return replace(context, arm=self._arm, journal=journal, steps=steps)

    def _arm(self, sequence: int, instalment: int) -> None:
        if sequence not in self.armed:  # as the ledger: what is spent is spent already
            self.armed.append(sequence)

    def _open(self, first: int, released: object) -> None:
        self.opened += 1

    def _keep(self, name: str, released: Json) -> None:
        assert name not in self.released
        self.released[name] = released


class Killed(EnvironmentProblem):
    """In place of a kill."""

    def __init__(self) -> None:
        super().__init__("Killed.", "Go on.")


@dataclass
class Remembering(Writing):
    """Keeps answers as an endpoint's are: by what was asked, and how often before in the same run.

    Attributes:
        dies_at: the number of the answer, of all, before which it dies.
        known: answers that came, to earlier runs too.
    """

    external: bool = True
    dies_at: int = -1
    known: dict[tuple[str, int], str] = field(default_factory=dict)
    turns: Counter[str] = field(default_factory=Counter)

    def write(self, prompts: Sequence[str], how: Sampling) -> list[Completion]:
        self.asked.append(list(prompts))
        found = []
        for prompt in prompts:
            key = prompt, self.turns[prompt]
            self.turns[prompt] += 1
            if key not in self.known:
                if len(self.known) == self.dies_at:
                    raise Killed
                self.known[key] = self.answer(prompt, len(self.known))
            found.append(Completion(self.known[key], 3, True))
        return found


WHOLE: dict[str, Any] = {"samples": 4, "rounds": 3, "candidates": 6, "variations": 3}


@pytest.mark.parametrize("selection", ["rank", "sample"])
@pytest.mark.parametrize("dies_at", [0, 3, 6, 8, 11, 12])
def test_an_endpoint_is_never_asked_twice_and_no_round_is_paid_twice(
    vowels: Corpus, dies_at: int, selection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds may ask the same: a text that stays is reworded again, and each time has an answer of its own."""
    monkeypatch.setattr(evolution_run, "WAYS", ("in other words",))
    wanted, diary = settings(**WHOLE, selection=selection), Diary()
    first = Remembering(lambda prompt, number: f"text {number}", dies_at=dies_at)
    context = Workshop(vowels).context()
    with pytest.raises(Killed):
        running(diary.context(context, 3), wanted, first).generated()
    second = Remembering(first.answer, known=first.known)
    made = running(diary.context(context, 3), wanted, second).generated()
    assert (diary.opened, diary.armed) == (1, [0, 1, 2])
    for mine, theirs in zip(first.asked, second.asked, strict=False):
        assert mine == theirs  # the same questions in the same order
    kept = written(step for name, step in diary.released.items() if not name.startswith("votes"))
    assert len(set(kept)) == len(kept) == len(second.known)
    assert len(set(texts_of(made))) == 4


@pytest.mark.parametrize("dies_in", ["candidates 0", "votes 0", "candidates 1", "votes 1", "texts"])
def test_what_a_local_model_wrote_is_voted_on_by_whoever_goes_on(
    vowels: Corpus, dies_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, diary = settings(**WHOLE | {"rounds": 2, "samples": 8}), Diary()
    context, writing = Workshop(vowels).context(), Writing()
    keep = diary._keep

    def dying(name: str, released: Json) -> None:
        keep(name, released)
        if name == dies_in:
            raise Killed

    monkeypatch.setattr(diary, "_keep", dying)
    with pytest.raises(Killed):
        running(diary.context(context, 2), wanted, writing).generated()
    known = dict(diary.released)
    monkeypatch.setattr(diary, "_keep", keep)
    made = running(diary.context(context, 2), wanted, writing).generated()
    assert {name: diary.released[name] for name in known} == known
    assert sum(map(len, writing.asked)) == Sizes.planned(wanted).prompts
    assert diary.armed == [0, 1]
    assert list(diary.released) == ["candidates 0", "votes 0", "candidates 1", "votes 1", "texts"]
    assert len(made.texts) == 8


def test_a_round_that_died_while_it_was_drawn_is_lost(vowels: Corpus) -> None:
    wanted, diary = settings(**WHOLE), Diary()
    running(diary.context(Workshop(vowels).context(), 3), wanted, Writing()).generated()
    del diary.released["votes 1"]
    with pytest.raises(StepLost):
        running(diary.context(Workshop(vowels).context(), 3), wanted, Writing()).generated()
    assert diary.armed == [0, 1, 2]


def test_all_that_is_written_down_is_counts_selections_and_texts_of_the_model(vowels: Corpus) -> None:
    diary = Diary()
    running(diary.context(Workshop(vowels).context(), 3), settings(**WHOLE), Writing()).generated()
    for name, released in diary.released.items():
        if name.startswith("votes"):
            assert isinstance(released, dict)
            assert set(released) == {"counts", "selected"}
        else:
            assert all(text.startswith("text ") for text in written([released]))


def written(steps: Iterable[Any]) -> list[str]:
    """The texts in steps that keep texts."""
    return [text for step in steps for text, _, _ in step]
