"""Manifests: what Portico writes, and what it refuses to read."""

import json
from typing import Any

import pytest

from portico.library.distribution.distribution_error import DistributionError, Untrusted
from portico.library.distribution.manifest import (
    BUNDLE_TYPE,
    CONFIG_TYPE,
    MAX_COMPONENT,
    WASM_TYPE,
    Descriptor,
    check_digest,
    component_layer,
    digest_of,
    new_config,
    new_manifest,
    read_manifest,
)

DATA = b"\0asm component"
IMAGE = "application/vnd.oci.image.layer.v1.tar+gzip"


def descriptor(kind: str = WASM_TYPE, size: int = len(DATA)) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest_of(DATA), "size": size}


def manifest(*layers: dict[str, Any], **more: Any) -> bytes:
    fields = {"schemaVersion": 2, "config": descriptor(CONFIG_TYPE), "layers": layers, **more}
    return json.dumps(fields).encode()


def test_a_manifest_has_the_layout_of_the_cncf_and_the_same_bytes_twice() -> None:
    layer = Descriptor(WASM_TYPE, digest_of(DATA), len(DATA))
    config = new_config(layer.digest, "2026-01-01T00:00:00Z", {"exports": ["a:b/c"]})
    made = new_manifest(config, layer, {"b": "2", "a": "1"})
    assert made == new_manifest(config, layer, {"a": "1", "b": "2"})
    fields = json.loads(made)
    assert fields["schemaVersion"] == 2
    assert fields["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert fields["config"]["mediaType"] == CONFIG_TYPE
    assert fields["layers"] == [descriptor()]
    about = json.loads(config)
    assert (about["architecture"], about["os"]) == ("wasm", "wasip2")
    assert about["layerDigests"] == [layer.digest]
    assert component_layer(read_manifest(made, "x"), "x") == (layer, "component")


def test_a_bundle_is_told_by_the_type_of_its_layer() -> None:
    found = read_manifest(manifest(descriptor(BUNDLE_TYPE)), "x")
    assert component_layer(found, "x")[1] == "bundle"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b" " * (100 * 1024 * 1024), "larger than"),
        (b"not JSON", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b"{}", "cannot be read"),
        (manifest(*[descriptor()] * 1000), "1,000 layers"),
        (manifest(descriptor(size=-1)), "negative size"),
        (manifest({**descriptor(), "digest": "sha256:../../x"}), "is not a digest"),
        (manifest(descriptor(), schemaVersion=1), "not the manifest of one component"),
        (
            manifest(descriptor(), mediaType="application/vnd.oci.image.index.v1+json"),
            "not the manifest of one component",
        ),
    ],
)
def test_a_wrong_manifest_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(DistributionError, match=why):
        read_manifest(data, "oci://host.example/x:1")


@pytest.mark.parametrize(
    ("layers", "why"),
    [
        ([descriptor(IMAGE)], "not a component"),
        ([], "not a component"),
        ([descriptor(), descriptor()], "not a component"),
        ([descriptor(), descriptor(IMAGE)], "not a component"),
        ([descriptor(size=MAX_COMPONENT + 1)], "larger than"),
    ],
)
def test_an_image_that_is_not_a_component_is_refused(
    layers: list[dict[str, Any]], why: str
) -> None:
    with pytest.raises(DistributionError, match=why):
        component_layer(read_manifest(manifest(*layers), "x"), "x")


def test_a_changed_byte_is_noticed() -> None:
    check_digest(DATA, digest_of(DATA), "x")
    with pytest.raises(Untrusted, match="nothing of it was used"):
        check_digest(DATA + b"!", digest_of(DATA), "x")
