"""Adapters on disk: named by their digest, found by name, refused when they are not what they say."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models_db.values.canonical_json import encode_canonical
from models_db.values.requests import model_to_json
from tasks.adapters import store
from tasks.adapters.adapter import Adapter, tensors_of
from tasks.adapters.metadata import AdapterMeta, KnownAdapter
from tasks.inference.catalogue.model_store import file_sha256
from tests.refusals import refusal
from tests.tiny_model import tiny_model
from tests.unit.tasks.systems.summaries.planted import adapter


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path))


def kept(made: Adapter) -> KnownAdapter:
    return store.save_adapter(
        made.meta, tensors_of(made.space, made.decoder), {store.LOSSES: "", store.CURVE: "<svg/>"}
    )


def file_of(known: KnownAdapter) -> Path:
    return store.adapter_folder(known.digest) / store.TENSORS


def test_what_is_kept_comes_back_to_the_bit() -> None:
    made = adapter(centres=2, tokens=5, words=2)
    known = kept(made)
    back = store.load_adapter(known, tiny_model())
    hidden = torch.randn((4, 32), generator=torch.Generator().manual_seed(1))
    assert back.meta == made.meta
    assert torch.equal(back.represent(hidden), made.represent(hidden))
    mean = torch.ones(12)
    assert torch.equal(back.soft_tokens(mean, 0.1), made.soft_tokens(mean, 0.1))
    assert not any(parameter.requires_grad for parameter in back.decoder.parameters())


def test_the_name_is_the_digest_of_tensors_and_meta_data() -> None:
    known = kept(adapter())
    assert known.digest == file_sha256(file_of(known))
    assert kept(adapter()).digest == known.digest
    assert kept(adapter(seed=6)).digest != known.digest
    assert kept(adapter(name="another")).digest != known.digest
    for_people = json.loads((store.adapter_folder(known.digest) / store.META).read_text())
    assert for_people.pop("digest") == known.digest
    assert encode_canonical(for_people) == encode_canonical(model_to_json(known.meta))


def test_an_adapter_is_found_by_name_by_digest_and_by_its_beginning() -> None:
    one, other = kept(adapter()), kept(adapter(name="another", seed=6))
    assert store.list_adapters() == [other, one]
    for named in ("planted", one.digest, one.digest[:8]):
        assert store.find_adapter(named) == one
    for named in ("nobody", "0" * 64, one.digest[:5], "../adapters", ""):
        with pytest.raises(store.AdapterUnknown):
            store.find_adapter(named)
    kept(adapter(seed=8))
    with refusal("AdapterAmbiguous"):
        store.find_adapter("planted")


def test_a_home_without_adapters_has_none() -> None:
    assert store.list_adapters() == []
    with pytest.raises(store.AdapterUnknown, match="no adapter 'x'"):
        store.find_adapter("x")


def test_a_name_is_given_once() -> None:
    kept(adapter())
    store.require_name_free("another")
    with refusal("AdapterNameTaken"):
        store.require_name_free("planted")


def test_an_adapter_of_another_model_is_refused() -> None:
    model = tiny_model()
    wide = kept(adapter(width=48, name="wide"))
    with refusal("AdapterUnfit", match="width 48"):
        store.load_adapter(wide, model)
    fit = kept(adapter())
    with refusal("AdapterUnfit", match="other weights"):
        store.load_adapter(fit, replace(model, digest="e" * 64))
    with refusal("AdapterUnfit", match="trained for the model 'tiny'"):
        store.load_adapter(fit, replace(model, name="other"))
    store.require_fit(fit, "tiny")
    with refusal("AdapterUnfit"):
        store.require_fit(fit, "smollm2-135m-instruct")


def test_a_damaged_adapter_is_told_of_and_keeps_nobody_from_the_others() -> None:
    one, other = kept(adapter()), kept(adapter(name="another", seed=6))
    file_of(one).write_bytes(b"no adapter")
    told: list[store.AdapterDamaged] = []
    assert store.list_adapters(told.append) == [other]
    assert [problem.facts["adapter"] for problem in told] == [one.digest]
    assert store.find_adapter("another") == other
    store.require_name_free("planted")
    with pytest.raises(store.AdapterUnknown):
        store.find_adapter("planted")


@pytest.mark.parametrize("place", [0, 9, 200, -1])
def test_a_single_changed_byte_is_noticed(place: int) -> None:
    known = kept(adapter())
    data = bytearray(file_of(known).read_bytes())
    data[place] ^= 1
    file_of(known).write_bytes(data)
    for look in (lambda: store.find_adapter(known.digest), lambda: store.load_adapter(known, tiny_model())):
        with pytest.raises(store.AdapterDamaged):
            look()


def renamed(data: bytes) -> KnownAdapter:
    """A file that has the digest its folder says, whatever is in it."""
    import hashlib

    digest = hashlib.sha256(data).hexdigest()
    folder = store.adapter_folder(digest)
    folder.mkdir(parents=True)
    (folder / store.TENSORS).write_bytes(data)
    return KnownAdapter(digest, adapter().meta)


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"\xff" * 40, b"\x02\0\0\0\0\0\0\0{}", b"\x02\0\0\0\0\0\0\0[]"])
def test_a_file_that_is_no_adapter_is_damaged_whatever_it_holds(data: bytes) -> None:
    known = renamed(data)
    with pytest.raises(store.AdapterDamaged):
        store.read_meta(known.digest)
    with pytest.raises(store.AdapterDamaged):
        store.load_adapter(known, tiny_model())


def test_tensors_of_other_shapes_or_without_numbers_are_damage() -> None:
    made = adapter()
    tensors = tensors_of(made.space, made.decoder)
    for changed in (
        {"mean": torch.zeros(31)}, {"more": torch.zeros(1)}, {"mean": torch.full((32,), torch.nan)},
    ):  # fmt: skip
        known = store.save_adapter(made.meta, tensors | changed, {})
        with pytest.raises(store.AdapterDamaged):
            store.load_adapter(known, tiny_model())


def test_meta_data_is_read_without_torch() -> None:
    known = kept(adapter())
    code = (
        "import sys\nfrom tasks.adapters.store import find_adapter\n"
        f"assert find_adapter({known.digest!r}).meta.name == 'planted'\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).resolve().parents[4])


def test_meta_data_in_another_form_is_refused() -> None:
    written = model_to_json(adapter().meta)
    assert isinstance(written, dict)
    assert AdapterMeta.model_validate_json(encode_canonical(written)) == adapter().meta
    for change in ({"format": "almoner-adapter-2"}, {"more": 1}, {"name": "../x"}, {"clip_norm": "0"}):
        with pytest.raises(ValueError):
            AdapterMeta.model_validate(written | change)
