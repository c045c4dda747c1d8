"""What a form may be, how a request declares it, and what is refused by name."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from models_db.errors import UsageError
from models_db.values.requests import model_to_json
from tasks.inference.structured_output.form import (
    LONGEST_FORM,
    MOST_SLOTS,
    Form,
    FormParameters,
    form_facts,
    form_of,
    require_one_grammar,
)
from tasks.inference.structured_output.json_schema import RecordParameters
from tests.refusals import refusal
from tests.unit.tasks.systems.record_schemas import FILM

PRODUCT = "The product is a {type}. Customers praise its {strength} and {strength}, but some complain about {weakness}."


def test_a_form_is_cut_at_its_slots() -> None:
    made = Form.read(PRODUCT)
    assert made.slots == ("type", "strength", "strength", "weakness")
    assert made.literals == ("The product is a ", ". Customers praise its ", " and ", ", but some complain about ", ".")
    assert made.filled(["kettle", "lid", "spout", "noise"]) == (
        "The product is a kettle. Customers praise its lid and spout, but some complain about noise."
    )
    assert made.draws(6) == 24


def test_a_form_may_begin_and_end_with_a_slot_and_have_lines() -> None:
    assert Form.read("{a}\n{b}").literals == ("", "\n", "")
    assert Form.read(" \n {a} is {b} \n").literals == ("", " is ", "")


def test_literal_braces_are_doubled() -> None:
    made = Form.read("A {{set}} of {things}, }}{{ so {{{x}}}")
    assert made.literals == ("A {set} of ", ", }{ so {", "}")
    assert made.slots == ("things", "x")


def test_letters_have_one_spelling() -> None:
    assert Form.read("Cafe\u0301 {x}") == Form.read("Caf\u00e9 {x}")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "no slot"),
        ("No slot at all.", "no slot"),
        ("Only {{literal}} braces.", "no slot"),
        ("A {slot", "a brace"),
        ("A slot} ends", "a brace"),
        ("An { empty } name", "name"),
        ("An {} empty name", "name"),
        ("A {0.real} number", "name"),
        ("A {number:5d}", "name"),
        ("A {number!r}", "name"),
        ("A {long%s}" % ("g" * 40), "name"),
        ("{caf\u00e9} is open", "name"),
        ("Its {first}{second}.", "nothing stands between"),
        ("Its {first} {second}.", "nothing stands between"),
        ("Its {first}  {second}.", "nothing stands between"),
        ("{all}", "no text beside"),
        ("\n{one}\n\n", "no text beside"),
        ("A tab\t{here}", "printed"),
        ("A zero\u200bwidth {space}", "printed"),
        ("x" * (LONGEST_FORM - 2) + "{a}", "longer than"),
        (", ".join(["{a}"] * (MOST_SLOTS + 1)), "more than"),
    ],
)
def test_what_is_no_form_is_refused_with_its_reason(text: str, named: str) -> None:
    with refusal("FormInvalid", match=named) as refused:
        Form.read(text)
    assert refused.value.exit_code == 2
    assert "docs/forms.md" in refused.value.advice


@given(st.text(alphabet="{}a1_ .\n\u00e9:!\t", max_size=40))
def test_any_text_is_a_form_or_is_refused_by_name(text: str) -> None:
    try:
        made = Form.read(text)
    except UsageError as refused:
        if refused.code != "FormInvalid":
            raise
        return
    assert len(made.literals) == len(made.slots) + 1 > 1
    doubled = [literal.replace("{", "{{").replace("}", "}}") for literal in made.literals]
    again = Form(tuple(doubled), made.slots).filled([f"{{{name}}}" for name in made.slots])
    assert Form.read(again) == made


def test_a_form_is_stored_only_where_it_is_declared() -> None:
    assert model_to_json(FormParameters()) == {"slot_tokens": 6}
    assert model_to_json(FormParameters(form=PRODUCT, slot_tokens=4)) == {"form": PRODUCT, "slot_tokens": 4}
    assert form_of(FormParameters(form=PRODUCT)) == Form.read(PRODUCT)
    assert form_of(FormParameters()) is None
    assert form_of(RecordParameters()) is None


@pytest.mark.parametrize("tokens", [0, 65])
def test_a_slot_has_one_to_sixty_four_tokens(tokens: int) -> None:
    with pytest.raises(ValueError, match="slot_tokens"):
        FormParameters(form=PRODUCT, slot_tokens=tokens)


def test_an_unusable_form_is_refused_by_its_own_name() -> None:
    with refusal("FormInvalid"):
        FormParameters(form="no slot")


def test_people_are_told_what_a_form_leaves_to_be_drawn() -> None:
    assert form_facts(FormParameters()) == {}
    facts = form_facts(FormParameters(form=PRODUCT))
    assert facts == {"form": "4 slots of at most 6 tokens; all other tokens are the form's and are not drawn"}
    assert form_facts(FormParameters(form="It is {x}."))["form"].startswith("1 slot of")


class Both(RecordParameters, FormParameters):
    """As the systems have them."""


@pytest.mark.parametrize("given", [{}, {"form": PRODUCT}, {"schema": FILM}])
def test_one_grammar_or_none_is_fine(given: dict[str, Any]) -> None:
    require_one_grammar(Both.model_validate(given))


def test_a_schema_and_a_form_are_refused_when_they_are_read() -> None:
    with refusal("FormAndSchema"):
        Both.model_validate({"form": PRODUCT, "schema": FILM})


def test_the_example_of_the_documentation_is_a_form() -> None:
    page = (Path(__file__).resolve().parents[5] / "docs" / "forms.md").read_text()
    wanted = FormParameters.model_validate(yaml.safe_load(page.split("```yaml")[1].split("```")[0])["parameters"])
    assert form_of(wanted) == Form.read(PRODUCT)
    assert "24 of up to 40 tokens" in page
    assert Form.read(PRODUCT).draws(wanted.slot_tokens) == 24
