"""Question histogram: closed questions asked of each unit, and noisy counts of the answers (PRIVACY §2, §5).

    count    the answer of every unit to every question: private, by a rule that reads one text at a time
    draw     all bins of all questions, with discrete Gaussian noise in each      `SetHistogram`, once
    rows     questions, answers, counts and margins                              post-processing

No word comes out that the request does not have. Names, answers and keywords are the request's, so a release cannot
invent any; only counts depend on the data.

Privacy. Let a release have q questions, and question j the answers A_j with `no answer` among them. Its rule is a
function f_j from a text to exactly one element of A_j, fixed by the request and the public model. The release counts

    n[j, a] = number of units u with f_j(text of u) = a        for all j and all a in A_j.

* f_j reads the text of one unit (`run`), and for a text that it cannot read it gives `no answer`. So a unit u adds 1 to
  exactly one bin of each question, whatever any other unit says, and adding or removing u moves exactly q counts by 1
  each, and no other: sqrt(q) in L2, for q questions in one vector.
* Noise of scale sigma, discrete Gaussian and independent, goes into every bin, the empty ones included. So one release
  is rho-zCDP with rho = q / (2 sigma^2) (Canonne, Kamath, Steinke, arXiv 2004.00010, Theorem 14), whatever the number
  of bins. That is what q histograms cost that have rho / q each (composition), drawn and paid for at once.
* The number of bins is public, each has a count, and no count is left out or cut: rows are a function of the noisy
  counts. A unit without an answer is counted like any other, so nothing tells how many have one.
* A text with an instruction can decide on its own unit's answers alone. k crafted units move at most k counts of a
  question, which whoever crafted them knows, and shift the noise of nothing else: the answer of a target is protected
  with the claim of the release, for any model and any prompt.
"""

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel

from models_db.values.amounts import Amount
from models_db.values.requests import format_decimal
from tasks.accounting.rounding import decimal_above
from tasks.decoding.run_context import RunContext
from tasks.mechanisms.counts.set_histogram import SetHistogram, calibrate_set_histogram
from tasks.systems.base import System
from tasks.systems.question_histogram.questions import AnswerWording, Question, QuestionHistogramParameters
from tasks.values.plan import WARNING, Plan, PlanInputs, invoked_once
from tasks.values.results import ANSWER_MARGIN, SIZE_DEVIATION, Generated, ReleaseKind, margin_of_error

PROMPT_TOKENS: Final = 60
"""Tokens behind a text, an answer included, for the estimate of time; those before it are read once."""
USUAL_TEXT_TOKENS: Final = 100
"""Of a unit, for the same estimate: the limit says little, because most texts are shorter."""


class QuestionHistogram(System):
    """The system `question_histogram`."""

    name: str = "question_histogram"
    kinds: tuple[str, ...] = (ReleaseKind.INSIGHTS,)
    parameters: type[BaseModel] = QuestionHistogramParameters
    other_question = "How many people ...? `question_histogram` counts answers (docs/insights.md)."
    wording = AnswerWording()

    def plan(self, ask: PlanInputs) -> Plan:
        """Buy one histogram of all bins, in one instalment, charged to every block.

        Raises:
            NoiseInvalid: the amount buys nothing.
        """
        settings = _typed_parameters(ask.parameters)
        histogram = histogram_for(settings, ask.amount or Amount())
        by_model = [question for question in settings.questions if question.rule == "model"]
        rows = (ask.population or 0) * sum(len(question.names) for question in by_model)
        return Plan(
            invocations=invoked_once([histogram.event()]),
            blocks=tuple(range(ask.blocks)),
            samples=len(settings.questions) + settings.bins,
            facts=_facts(settings, histogram, ask.population),
            rows=rows,
            steps=1,
            prompt_tokens=min(settings.max_text_tokens, USUAL_TEXT_TOKENS) + PROMPT_TOKENS,
            reading_rows=rows,
            amount=ask.amount or Amount(),
        )

    def generate(self, plan: Plan, parameters: BaseModel, context: RunContext) -> Generated:
        """Ask every unit, release the noisy counts, and write the rows.

        Raises:
            ContextTooLong, NoChatTemplate, ControlTokens, RowsNotIsolated, NotEnoughMemory: a question for the model
                that it, or the device, cannot answer. None of these has armed anything.
            StepLost: an interrupted run has paid for the counts and lost them.
        """
        from tasks.systems.question_histogram.run import QuestionHistogramRun  # imports torch

        settings = _typed_parameters(parameters)
        histogram = histogram_for(settings, plan.amount)
        plan.require_invoking([histogram.event()])
        return QuestionHistogramRun.of(settings, histogram, plan, context).generated()


def histogram_for(parameters: QuestionHistogramParameters, amount: Amount) -> SetHistogram:
    """Return the histogram of all bins that `amount` buys: a unit is in one bin of each question.

    Raises:
        NoiseInvalid: it buys nothing.
    """
    return calibrate_set_histogram(amount.rho, parameters.bins, len(parameters.questions), "gaussian")


def _typed_parameters(parameters: BaseModel) -> QuestionHistogramParameters:
    if not isinstance(parameters, QuestionHistogramParameters):
        raise TypeError(f"parameters of question_histogram are needed, not {type(parameters).__name__}")
    return parameters


def _facts(
    parameters: QuestionHistogramParameters, histogram: SetHistogram, population: int | None
) -> Mapping[str, str]:
    """Return the public parameters for people."""
    deviation = decimal_above(histogram.scale, 2)
    margin = margin_of_error(deviation)
    warnings = [line for question in parameters.questions if (line := _warning(question, population, margin))]
    questions = {
        f"question {number}": f"{question.question} ({_rule(question)}): {' / '.join(question.names)}"
        for number, question in enumerate(parameters.questions, 1)
    }
    model = any(question.rule == "model" for question in parameters.questions)
    return {
        **questions,
        "bins": str(parameters.bins),
        "answers of a unit": "one to each question",
        **({"tokens of a unit that the model reads": str(parameters.max_text_tokens)} if model else {}),
        "answer counts": histogram.facts()["noise"],
        SIZE_DEVIATION: format_decimal(deviation),
        ANSWER_MARGIN: str(margin),
        **({WARNING: " ".join(warnings)} if warnings else {}),
    }


def _rule(question: Question) -> str:
    return "by the model" if question.rule == "model" else f"by keywords, {question.match} matching"


def _warning(question: Question, population: int | None, margin: int) -> str | None:
    """Return the warning that the counts of a question will say little; None where they can, or nothing is declared."""
    bins = len(question.names)
    if population is None or population >= margin * bins:
        return None
    return (
        f"A count is off by up to {margin} units (95 %), and {population:,} declared units are {population // bins} for"
        f" each of the {bins} bins of {question.question!r}: most of its counts will say little. Ask fewer questions"
        " with fewer answers, or for a larger epsilon."
    )
