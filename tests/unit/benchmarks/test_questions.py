"""Truthfulness of question histograms: the figures of a rule."""

SCRIPTS = ("insights.questions",)


def test_the_figures_of_a_rule(bench):
    questions = bench["insights.questions"]
    asked = questions.question_for("agnews")
    said = {"a war": "World", "troops": "World", "tennis": "World", "Tennis": "Sports", "hm": "Business"}
    rows = [{"text": text, "label": label} for text, label in said.items()]
    line = questions.line_of("agnews", "keywords, most", asked, rows, questions.KeywordRule.of(asked))
    assert (line["units"], line["right"], line["no_answer"], line["answers"]) == (5, 3, 1, 4)
    assert line["counts"] == {
        "World": [2, 3], "Sports": [2, 1], "Business": [0, 1], "Sci/Tech": [0, 0], "no answer": [1, 0],
    }  # fmt: skip
    assert line["largest_error"] == 1
    assert line["total_variation"] == 0.3  # 2/4 for 3/5, 2/4 for 1/5, none for 1/5
    assert line["right_low"] < 0.6 < line["right_high"]
    assert line["within_margin"] > 0.9 * line["draws"]
    skewed = list(questions._skewed([{"text": "", "label": label} for label in "aabbbb"]))
    assert [row["label"] for row in skewed] == list("aabb")
