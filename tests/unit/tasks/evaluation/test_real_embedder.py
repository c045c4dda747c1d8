"""Metrics with the embedder that reports use: BERTScore as the package's, and corpora that are plainly alike or not."""

import pytest

from tasks.evaluation.distributions import mauve, train_on_synthetic
from tasks.evaluation.neighbours import bert_score, bert_scores, proximity, self_similarity
from tasks.inference.catalogue.registry import list_models
from tasks.inference.embeddings.encoder import EMBEDDER, load_embedder
from tasks.inference.embeddings.unit_embeddings import CachedEmbedder
from tests.support import require
from tests.unit.tasks.evaluation.embedded_subjects import number, subject, themed
from tests.unit.tasks.evaluation.test_train_on_synthetic import compared, labelled

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/evaluation", "tasks/inference/embeddings")

# bert-score 0.3.13, utils.greedy_cos_idf on the last hidden states of these pairs, weight 1 for every piece and 0 for
# both marks: P, R, F.
PAIRS = [
    (
        "The patient was seen at noon.",
        "A doctor saw the patient at midday; no fever.",
        (0.713897, 0.585288, 0.643227),
    ),
    ("Pasta with basil and olive oil.", "Fresh basil pasta.", (0.747326, 0.785468, 0.765922)),
]


@pytest.fixture(scope="module")
def embed() -> CachedEmbedder:
    installed = any(model.name == EMBEDDER and model.installed for model in list_models())
    require(installed, f"the embedder is not pulled: almoner models pull {EMBEDDER}")
    return CachedEmbedder(load_embedder(device="cpu"))


@pytest.mark.parametrize(("candidate", "reference", "scores"), PAIRS)
def test_bert_score_is_that_of_the_package(embed, candidate, reference, scores):
    assert bert_scores(*embed.pieces([candidate, reference])) == pytest.approx(scores, abs=2e-6)


def test_bert_score_pairs_by_meaning(embed):
    references = [reference for _, reference, _ in PAIRS]
    found = bert_score(subject([candidate for candidate, _, _ in PAIRS], references, embed)).values
    assert number(found["f1"]) == pytest.approx((0.643227 + 0.765922) / 2, abs=1e-4)


@pytest.mark.slow
def test_what_is_plainly_alike_and_what_is_not(embed):
    documents = themed(60, 1)
    strange = ["The committee postponed the reading of its minutes."] * 29 + ["Quantum fields were quantised."]
    for metric, figure in ((mauve, "mauve"), (proximity, "mean")):
        like = metric(subject(themed(30, 2), documents, embed)).values
        other = metric(subject(strange, documents, embed)).values
        assert number(like[f"{figure}_low"]) > number(other[f"{figure}_high"])
    assert proximity(subject(documents, documents, embed)).values["mean_low"] == "1.0000"
    dull, varied = (self_similarity(subject(texts, [], embed)).values for texts in (strange, themed(30, 2)))
    assert number(dull["near_duplicate"]) == pytest.approx(29 / 30, abs=1e-4)
    assert number(dull["mean_low"]) > number(varied["mean_high"])


def test_labels_are_learned_from_meaning(embed):
    found = train_on_synthetic(compared(labelled(40, 1), labelled(40, 2), embed)).values
    assert number(found["synthetic_accuracy"]) > 0.9
