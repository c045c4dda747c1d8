"""Train on the release, test on the corpus: the classifier as scikit-learn's, and what it says of known corpora."""

from dataclasses import replace

import numpy as np
import pytest

from tasks.evaluation.algorithms import fit_softmax, macro_f1
from tasks.evaluation.distributions import train_on_synthetic
from tests.tiny_embedder import Letters
from tests.unit.tasks.evaluation.embedded_subjects import THEMES, number, subject
from tests.unit.tasks.evaluation.subjects import Text

pytestmark = pytest.mark.dear

LABELS = ("health", "money", "food", "sport")

# scikit-learn 1.9.1, LogisticRegression(C=1, tol=1e-10, max_iter=10000), on `learned()`: coefficients, intercepts.
COEFFICIENTS = [
    [-1.5922992315796916, -1.1550564490055666, -1.2192831985752648, 0.07344129647214952],
    [0.5811911955769018, 0.4126470310732855, -0.21774509057246996, 0.056476373134379004],
    [1.0111080360027898, 0.7424094179322807, 1.4370282891477344, -0.12991766960652873],
]
INTERCEPTS = [0.36796378, 1.49220905, -1.86017282]


def learned():
    points = np.random.default_rng(3).normal(size=(60, 4))
    return points, (points[:, 0] + 0.5 * points[:, 1] > 0).astype(int) + (points[:, 2] > 0.8)


def labelled(count, seed, themes=range(4)):
    """(text, label) of eight words each."""
    generator = np.random.default_rng(seed)
    chosen = [int(generator.choice(list(themes))) for _ in range(count)]
    return [(" ".join(generator.choice(THEMES[theme].split(), size=8)), LABELS[theme]) for theme in chosen]


def compared(released, documents, embed=None):
    texts = [Text(text, label=label) for text, label in released]
    return replace(subject([], [text for text, _ in documents], embed), texts=texts, labelled=lambda: documents)


def coral_loss(weights, points, target, count):
    apart = np.cov((points @ weights).T) - np.cov((target @ weights).T)
    return float((apart**2).sum()) / (4 * count**2)


def test_the_classifier_is_scikit_learns():
    points, classes = learned()
    found = fit_softmax(points, classes, 3)
    assert pytest.approx(np.array(COEFFICIENTS), abs=1e-4) == found.weights.T
    assert found.offsets - found.offsets.mean() == pytest.approx(INTERCEPTS, abs=1e-4)
    assert (found(points) == classes).mean() > 0.8


def test_with_deep_coral_it_is_the_minimum_of_the_sum_of_both_losses():
    """The sum is written down again here, from the logits, and has no slope where the fit ended."""
    points, classes = learned()
    target = points * [3.0, 0.5, 1.0, 1.0] + 1
    found = fit_softmax(points, classes, 3, target)

    def loss(flat):
        weights, offsets = flat[:12].reshape(4, 3), flat[12:]
        logits = points @ weights + offsets
        own = logits[np.arange(60), classes] - np.log(np.exp(logits).sum(1))
        return -own.mean() + (weights**2).sum() / 120 + coral_loss(weights, points, target, 3)

    ended, step = np.concatenate([found.weights.ravel(), found.offsets]), 1e-5
    slopes = [(loss(ended + step * side) - loss(ended - step * side)) / (2 * step) for side in np.eye(15)]
    assert np.abs(slopes).max() < 1e-4
    plain = fit_softmax(points, classes, 3)
    assert coral_loss(found.weights, points, target, 3) < 0.5 * coral_loss(plain.weights, points, target, 3)


def test_a_target_like_the_source_changes_nothing():
    points, classes = learned()
    assert fit_softmax(points, classes, 3, points + 5).weights == pytest.approx(
        fit_softmax(points, classes, 3).weights, abs=1e-5
    )


def test_macro_f1_is_scikit_learns():
    """f1_score(average="macro", labels=[0, 1, 2, 3], zero_division=0) gives 0.525 here."""
    assert macro_f1(np.array([0, 0, 1, 1, 2, 2, 2]), np.array([0, 1, 1, 1, 2, 0, 2]), 4) == pytest.approx(0.525)


def test_a_faithful_release_teaches_as_much_as_the_corpus():
    found = train_on_synthetic(compared(labelled(60, 1), labelled(120, 2))).values
    assert (found["labels"], found["trained_on"], found["tested_on"]) == (4, 60, 60)
    for system in ("synthetic", "coral", "real"):
        assert number(found[f"{system}_accuracy"]) > 0.95
        assert number(found[f"{system}_macro_f1_low"]) > 0.8
    assert number(found["gap_low"]) <= 0 <= number(found["gap_high"])
    assert number(found["majority"]) < 0.5


def test_a_release_with_wrong_labels_teaches_nothing():
    generator = np.random.default_rng(0)
    shuffled = [(text, LABELS[generator.integers(4)]) for text, _ in labelled(60, 1)]
    found = train_on_synthetic(compared(shuffled, labelled(120, 2))).values
    assert number(found["synthetic_accuracy_high"]) < number(found["real_accuracy_low"])
    assert number(found["gap_low"]) > 0


def test_only_documents_with_a_released_label_are_tests():
    found = train_on_synthetic(compared(labelled(40, 1, (0, 1)), labelled(80, 2))).values
    among = sum(label in LABELS[:2] for _, label in labelled(80, 2))
    assert (found["labels"], found["tested_on"]) == (2, among // 2)


@pytest.mark.parametrize(
    ("released", "documents"),
    [
        ([], labelled(20, 1)),
        (labelled(20, 1), []),
        (labelled(20, 1), labelled(3, 2)),
        (labelled(20, 1, (0,)), labelled(20, 2)),
        ([(text, None) for text, _ in labelled(20, 1)], labelled(20, 2)),
    ],
)
def test_what_cannot_be_learned_is_null_and_embeds_nothing(released, documents):
    embed = Letters()
    found = train_on_synthetic(compared(released, documents, embed))
    assert found.values["synthetic_accuracy"] is None
    assert "too few" in found.line
    assert embed.asked == []


def test_a_corpus_without_labels_is_null():
    found = train_on_synthetic(replace(compared(labelled(20, 1), labelled(20, 2)), labelled=None))
    assert found.values["real_accuracy"] is None


def test_real_documents_of_one_label_leave_the_other_figures():
    result = train_on_synthetic(compared(labelled(20, 1), labelled(4, 2, (1,))))
    assert "None" not in result.line
    found = result.values
    assert found["real_accuracy"] is None
    assert found["gap"] is None
    assert found["synthetic_accuracy"] is not None
    assert found["majority"] == "1.0000"
