"""Registries that lie, die or redirect: refused, nothing half-written, nothing leaked."""

import base64
import itertools
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from portico.core.config.publishing import RegistrySettings
from portico.core.http1.url import Origin
from portico.library.distribution import blob_download, blob_upload
from portico.library.distribution.distribution_error import (
    DistributionError,
    RegistryUnavailable,
    Untrusted,
)
from portico.library.distribution.manifest import MANIFEST_TYPE, MAX_MANIFEST, digest_of
from portico.library.distribution.registry_rule import RegistryRule
from portico.library.distribution.signature import signature_tag
from portico.upstream.auth.address_rule import AddressRule
from tests.library.distribution.own_registry import (
    Answer,
    OwnRegistry,
    Seen,
    layer_of,
    own_registry,
)
from tests.library.distribution.rigs import PASSWORD, USER, component
from tests.library.distribution.user import User

LAYER = layer_of(1_000_000)
BASIC = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnRegistry]:
    monkeypatch.setattr(blob_download, "PAUSE_S", 0.001)
    monkeypatch.setattr(blob_upload, "PAUSE_S", 0.001)
    with own_registry() as made:
        yield made


@pytest.fixture
def user(registry: OwnRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> User:
    return User(tmp_path / "user", registry.host, monkeypatch)


def assert_nothing(user: User) -> None:
    assert not user.home.lock.exists()
    assert not user.home.blobs()
    with pytest.raises(DistributionError, match="not pulled yet"):
        user.find("calc:1")


def test_a_pull_is_whole_private_and_offline_afterwards(registry: OwnRegistry, user: User) -> None:
    registry.add("calc", "1", LAYER)
    pulled = user.pull("calc:1")
    assert Path(pulled.path).read_bytes() == LAYER
    for folder, _, files in os.walk(user.cache.folder):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        for one in files:
            assert stat.S_IMODE(os.stat(os.path.join(folder, one)).st_mode) == 0o600
    seen = len(registry.seen)
    assert user.find("calc:1").path == pulled.path
    assert len(registry.seen) == seen
    user.pull("calc:1")
    assert len(registry.requests("GET", "/blobs/")) == 1


@pytest.mark.parametrize("wrong", [LAYER[:-1] + b"x", b"x" * len(LAYER)])
def test_a_tampered_layer_is_refused(registry: OwnRegistry, user: User, wrong: bytes) -> None:
    registry.add("calc", "1", LAYER)
    registry.blobs[digest_of(LAYER)] = wrong
    with pytest.raises(Untrusted, match=r"with the digest .* nothing of it was used"):
        user.pull("calc:1")
    assert_nothing(user)
    assert user.leftovers() == []


def test_a_tampered_manifest_is_refused(registry: OwnRegistry, user: User) -> None:
    digest = registry.add("calc", "1", LAYER)
    other = registry.add("calc", "2", layer_of(500))
    registry.manifests["calc", digest] = registry.manifests["calc", other]
    with pytest.raises(Untrusted, match=f"its digest is {other}, not {digest}"):
        user.pull(f"calc@{digest}")
    assert_nothing(user)


@pytest.mark.parametrize("size", [len(LAYER) - 1, len(LAYER) + 1, 10])
def test_a_registry_that_lies_about_a_size_is_refused_before_it_is_read(
    registry: OwnRegistry, user: User, size: int
) -> None:
    registry.add("calc", "1", LAYER, size=size)
    with pytest.raises(Untrusted, match="announced 1,000,000 bytes instead of"):
        user.pull("calc:1")
    assert_nothing(user)
    assert user.leftovers() == []


def test_more_than_the_stated_size_is_refused_as_it_arrives(
    registry: OwnRegistry, user: User
) -> None:
    registry.add("calc", "1", LAYER)
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(LAYER) + 5, LAYER + b"more!")

    def chunked(seen: Seen) -> Answer | None:
        if "/blobs/" not in seen.path:
            return None
        return Answer(200, chunks, {"Content-Length": "", "Transfer-Encoding": "chunked"})

    registry.hook = chunked
    with pytest.raises(Untrusted, match="sent more than the 1,000,000 bytes"):
        user.pull("calc:1")
    assert_nothing(user)


def test_a_registry_that_dies_half_way_is_asked_for_the_rest(
    registry: OwnRegistry, user: User
) -> None:
    registry.add("calc", "1", LAYER)
    cuts = iter([300_000, 1, 0, 500_000])

    def dying(seen: Seen) -> Answer | None:
        if "/blobs/" not in seen.path or (cut := next(cuts, None)) is None:
            return None
        registry.hook = lambda _: None
        answer = registry.answer(seen)
        registry.hook = dying
        answer.cut = cut
        return answer

    registry.hook = dying
    assert Path(user.pull("calc:1").path).read_bytes() == LAYER
    ranges = [one.headers.get("range") for one in registry.requests("GET", "/blobs/")]
    assert ranges == [None, *(f"bytes={at}-" for at in (300_000, 300_001, 300_001, 800_001))]


def test_a_registry_that_stays_dead_leaves_a_part_that_the_next_pull_takes_up(
    registry: OwnRegistry, user: User
) -> None:
    registry.add("calc", "1", LAYER)
    count = itertools.count()

    def dead(seen: Seen) -> Answer | None:
        if "/blobs/" not in seen.path:
            return None
        return Answer(200, LAYER, cut=400_000 if next(count) == 0 else 0)

    registry.hook = dead
    with pytest.raises(RegistryUnavailable, match="400,000 of 1,000,000 bytes are here: pull"):
        user.pull("calc:1")
    assert_nothing(user)
    registry.hook = lambda _: None
    registry.seen.clear()
    assert Path(user.pull("calc:1").path).read_bytes() == LAYER
    [again] = registry.requests("GET", "/blobs/")
    assert again.headers["range"] == "bytes=400000-"
    assert user.leftovers() == []


def test_a_registry_without_ranges_sends_everything_again(
    registry: OwnRegistry, user: User
) -> None:
    registry.add("calc", "1", LAYER)
    registry.has_ranges = False
    part = Path(user.cache.partial(digest_of(LAYER)))
    part.write_bytes(LAYER[:1000])
    assert Path(user.pull("calc:1").path).read_bytes() == LAYER


@pytest.mark.parametrize("left", [b"x" * 1000, LAYER + b"more", b"x" * len(LAYER)])
def test_a_wrong_part_of_a_former_download_is_replaced(
    registry: OwnRegistry, user: User, left: bytes
) -> None:
    registry.add("calc", "1", LAYER)
    Path(user.cache.partial(digest_of(LAYER))).write_bytes(left)
    assert Path(user.pull("calc:1").path).read_bytes() == LAYER


def test_a_part_that_was_not_requested_is_refused(registry: OwnRegistry, user: User) -> None:
    registry.add("calc", "1", LAYER)
    Path(user.cache.partial(digest_of(LAYER))).write_bytes(LAYER[:1000])

    def other(seen: Seen) -> Answer | None:
        about = {"Content-Range": f"bytes 500-{len(LAYER) - 1}/{len(LAYER)}"}
        return Answer(206, LAYER[500:], about) if "/blobs/" in seen.path else None

    registry.hook = other
    with pytest.raises(Untrusted, match="another part than the one requested"):
        user.pull("calc:1")
    assert_nothing(user)


def test_a_damaged_cache_is_noticed_and_pulled_again(registry: OwnRegistry, user: User) -> None:
    registry.add("calc", "1", LAYER)
    path = Path(user.pull("calc:1").path)
    path.write_bytes(b"changed" + LAYER[7:])
    with pytest.raises(DistributionError, match="not in the cache any more; run `portico pull"):
        user.find("calc:1")
    assert Path(user.pull("calc:1").path).read_bytes() == LAYER
    assert Path(user.find("calc:1").path).read_bytes() == LAYER


def test_a_moved_tag_is_refused_until_it_is_accepted(registry: OwnRegistry, user: User) -> None:
    old = registry.add("calc", "1", LAYER)
    user.pull("calc:1")
    new = registry.add("calc", "1", layer_of(700))
    with pytest.raises(Untrusted, match=f"it was {old} and is {new} now; run `portico pull --up"):
        user.pull("calc:1")
    assert user.find("calc:1").reference.digest == old
    assert user.pull("calc:1", update=True).reference.digest == new
    assert user.find("calc:1").reference.digest == new
    entry = next(iter(user.home.locked().values()))
    assert (entry["digest"], entry["former"]) == (new, [old])


def test_an_old_manifest_that_is_served_again_is_refused(registry: OwnRegistry, user: User) -> None:
    old = registry.add("calc", "1", LAYER)
    user.pull("calc:1")
    new = registry.add("calc", "1", layer_of(700))
    user.pull("calc:1", update=True)
    registry.manifests["calc", "1"] = registry.manifests["calc", old]
    with pytest.raises(Untrusted, match="it was"):
        user.pull("calc:1")
    with pytest.raises(Untrusted, match=f"serves {old} again, which was replaced by {new}"):
        user.pull("calc:1", update=True)
    assert user.pull(f"calc:1@{old}", update=True).reference.digest == old
    assert user.find("calc:1").reference.digest == old


# Signatures


@pytest.fixture
def key() -> Any:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.mark.parametrize(
    "make", [lambda: ec.generate_private_key(ec.SECP256R1()), Ed25519PrivateKey.generate]
)
def test_a_signed_component_is_accepted(registry: OwnRegistry, user: User, make: Any) -> None:
    digest = registry.add("calc", "1", LAYER)
    mine = make()
    registry.sign("calc", digest, mine)
    user.trust_key(mine)
    by = user.pull("calc:1").signed_by
    assert by is not None
    assert (by.key, by.claimed_at) == ("mine", "2026-01-01T00:00:00Z")
    assert user.find("calc:1").signed_by == by
    assert user.home.locked()[f"oci://{user.host}/calc:1"]["signed_by"] == "mine"


def test_an_unsigned_component_is_refused_before_it_is_downloaded(
    registry: OwnRegistry, user: User
) -> None:
    registry.add("calc", "1", LAYER)
    user.trust()
    with pytest.raises(Untrusted, match=r"it is not signed; sign it, or allow it with unsigned ="):
        user.pull("calc:1")
    assert registry.requests("GET", "/blobs/") == []
    assert_nothing(user)
    user.trust(f'[trust]\nunsigned = ["{registry.host}/calc"]\n')
    assert user.pull("calc:1").signed_by is None
    user.trust()
    with pytest.raises(Untrusted, match="it is not signed"):
        user.find("calc:1")


def test_signatures_that_do_not_hold_are_refused(
    registry: OwnRegistry, user: User, key: Any
) -> None:
    digest = registry.add("calc", "1", LAYER)
    user.trust_key(key)
    stranger = ec.generate_private_key(ec.SECP256R1())
    for other, signer, why in (
        ({}, stranger, "by no key that"),
        ({"repository": f"{registry.host}/other"}, key, "for another name"),
        ({"for_digest": digest_of(b"another")}, key, "for another digest"),
    ):
        registry.sign("calc", digest, signer, **other)
        with pytest.raises(Untrusted, match=why):
            user.pull("calc:1")
        assert_nothing(user)
    assert digest_of(LAYER) not in [one.path[-71:] for one in registry.requests("GET", "/blobs/")]


def test_a_tampered_signature_is_refused(registry: OwnRegistry, user: User, key: Any) -> None:
    digest = registry.add("calc", "1", LAYER)
    registry.sign("calc", digest, key)
    user.trust_key(key, more='[trust]\nunsigned = ["*"]\n')
    place = "calc", signature_tag(digest)
    good = registry.manifests[place]
    manifest = json.loads(good)
    about = manifest["layers"][0]["annotations"]
    name = "dev.cosignproject.cosign/signature"
    about[name] = base64.b64encode(b"x" + base64.b64decode(about[name])[1:]).decode()
    registry.manifests[place] = json.dumps(manifest).encode()
    with pytest.raises(Untrusted, match="by no key that"):
        user.pull("calc:1")
    registry.manifests[place] = good
    payload = next(one for one, data in registry.blobs.items() if b"critical" in data)
    registry.blobs[payload] = registry.blobs[payload].replace(b"2026", b"2027")
    with pytest.raises(Untrusted, match="its digest is"):
        user.pull("calc:1")
    assert_nothing(user)


def test_a_key_for_another_name_does_not_count(registry: OwnRegistry, user: User, key: Any) -> None:
    registry.sign("calc", registry.add("calc", "1", LAYER), key)
    user.trust_key(key, signs_for="registry.example")
    with pytest.raises(Untrusted, match="signed by mine, which may not sign for"):
        user.pull("calc:1")


def test_a_retired_key_vouches_only_for_what_is_locked(
    registry: OwnRegistry, user: User, key: Any
) -> None:
    registry.sign("calc", registry.add("calc", "1", LAYER), key)
    user.trust_key(key)
    user.pull("calc:1")
    user.trust_key(key, more="retired = true\n")
    assert user.find("calc:1").signed_by is not None
    assert user.pull("calc:1").signed_by is not None
    registry.sign("calc", registry.add("calc", "2", layer_of(600)), key)
    with pytest.raises(Untrusted, match="a retired key, and its digest is not in the lock file"):
        user.pull("calc:2")
    user.trust()
    with pytest.raises(Untrusted, match="by no key that"):
        user.find("calc:1")


# Manifests


@pytest.mark.parametrize(
    "data, why",
    [
        (b" " * (MAX_MANIFEST + 1), r"sent more than 4,194,304 bytes"),
        (b"not json", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
    ],
)
def test_a_manifest_that_cannot_be_one_is_refused(
    registry: OwnRegistry, user: User, data: bytes, why: str
) -> None:
    registry.add_manifest("calc", "1", data)
    with pytest.raises(DistributionError, match=why):
        user.pull("calc:1")
    assert_nothing(user)


def test_a_manifest_of_100_mb_is_not_read_to_its_end(registry: OwnRegistry, user: User) -> None:
    registry.manifests["calc", "1"] = b" " * (100 * 1024 * 1024)
    with pytest.raises(DistributionError, match="sent more than 4,194,304 bytes, the limit"):
        user.pull("calc:1")
    assert_nothing(user)


def image(layers: int, config: str, layer: str) -> bytes:
    blob = {"digest": digest_of(b"x"), "size": 1}
    return json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": {"mediaType": config, **blob},
            "layers": [{"mediaType": layer, **blob}] * layers,
        }
    ).encode()


@pytest.mark.parametrize(
    "data, why",
    [
        (image(1000, "a/b", "application/wasm"), "1,000 layers; a component has one"),
        (image(2, "a/b", "application/wasm"), "with 2 layers; a component has one layer"),
        (
            image(1, "application/vnd.oci.image.config.v1+json", "application/x-tar"),
            "not a component: its config is 'application/vnd.oci.image.config",
        ),
        (json.dumps({"schemaVersion": 2, "manifests": []}).encode(), "cannot be read"),
    ],
)
def test_an_image_that_is_not_a_component_is_refused(
    registry: OwnRegistry, user: User, data: bytes, why: str
) -> None:
    registry.add_manifest("calc", "1", data)
    with pytest.raises(DistributionError, match=why):
        user.pull("calc:1")
    assert_nothing(user)


# Credentials


def challenge(realm: str) -> dict[str, str]:
    return {"WWW-Authenticate": f'Bearer realm="{realm}",service="tests",scope="ignored"'}


def guarded(registry: OwnRegistry, realm: str) -> None:
    """Let the registry demand a token of a service."""

    def hook(seen: Seen) -> Answer | None:
        if seen.path.startswith("/token"):
            return Answer(200, b'{"token": "tok-canary"}')
        if seen.headers.get("authorization") == "Bearer tok-canary":
            return None
        return Answer(401, headers=challenge(realm))

    registry.hook = hook


def test_a_token_of_the_registrys_own_host_is_fetched_with_the_login(
    registry: OwnRegistry, user: User, tmp_path: Path
) -> None:
    guarded(registry, f"{registry.url}/token")
    user.home.log_in(registry.host)
    pushed = user.push(component(tmp_path / "calc.wasm"), "calc:1")
    assert user.pull("calc:1").reference.digest == pushed.reference.digest
    tokens = registry.requests("GET", "/token")
    assert {one.headers["authorization"] for one in tokens} == {f"Basic {BASIC}"}
    scopes = {one.path.partition("scope=")[2] for one in tokens}
    assert scopes == {"repository%3Acalc%3Apull%2Cpush", "repository%3Acalc%3Apull"}
    others = [one for one in registry.seen if "/token" not in one.path]
    assert not any(PASSWORD in one.text or BASIC in one.text for one in others)


def test_a_login_goes_to_another_token_service_only_if_it_is_listed(
    registry: OwnRegistry, user: User
) -> None:
    registry.add("calc", "1", LAYER)
    user.home.log_in(registry.host)
    with own_registry() as other:
        other.hook = lambda _: Answer(200, b'{"access_token": "tok-canary"}')
        realm = other.url.replace("127.0.0.1", "localhost") + "/token"
        guarded(registry, realm)
        with pytest.raises(DistributionError, match=r"another host, which gets none of your cred"):
            user.pull("calc:1")
        assert other.seen == []
        user.home.write(registry.host, more='token_hosts = ["localhost"]\n')
        user.pull("calc:1")
        assert [one.headers["authorization"] for one in other.seen] == [f"Basic {BASIC}"]


def test_an_anonymous_token_needs_no_listed_host(registry: OwnRegistry, user: User) -> None:
    registry.add("calc", "1", LAYER)
    with own_registry() as other:
        other.hook = lambda _: Answer(200, b'{"token": "tok-canary"}')
        guarded(registry, other.url.replace("127.0.0.1", "localhost") + "/token")
        user.pull("calc:1")
        assert all("authorization" not in one.headers for one in other.seen)


def test_an_identity_token_is_exchanged(registry: OwnRegistry, user: User) -> None:
    registry.add("calc", "1", LAYER)
    guarded(registry, f"{registry.url}/token")
    user.home.docker({"auths": {registry.host: {"identitytoken": "identity-canary"}}})
    user.pull("calc:1")
    [asked] = registry.requests("POST", "/token")
    assert b"grant_type=refresh_token" in asked.body
    assert b"identity-canary" in asked.body
    assert not any("identity-canary" in one.text for one in registry.seen if one is not asked)


def test_a_blob_behind_a_redirect_gets_no_credentials(registry: OwnRegistry, user: User) -> None:
    registry.add("calc", "1", LAYER)
    user.home.log_in(registry.host)
    with own_registry() as store:
        store.hook = lambda seen: Answer(200, LAYER) if seen.path == "/blob?sig=x" else None

        def hook(seen: Seen) -> Answer | None:
            if seen.headers.get("authorization") != f"Basic {BASIC}":
                return Answer(401, headers={"WWW-Authenticate": 'Basic realm="tests"'})
            moved = {"Location": f"{store.url}/blob?sig=x"}
            return Answer(307, headers=moved) if "/blobs/" in seen.path else None

        registry.hook = hook
        assert Path(user.pull("calc:1").path).read_bytes() == LAYER
        assert len(store.seen) == 1
        assert "authorization" not in store.seen[0].headers
        assert BASIC not in store.seen[0].text


def test_an_upload_at_another_host_gets_no_credentials(
    registry: OwnRegistry, user: User, tmp_path: Path
) -> None:
    user.home.log_in(registry.host)
    with own_registry() as store:
        store.hook = lambda seen: Answer(
            201 if seen.method == "PUT" else 202, headers={"Location": "/up"}
        )

        def hook(seen: Seen) -> Answer | None:
            if seen.headers.get("authorization") != f"Basic {BASIC}":
                return Answer(401, headers={"WWW-Authenticate": "Basic"})
            if seen.method == "POST":
                return Answer(202, headers={"Location": f"{store.url}/up"})
            return None

        registry.hook = hook
        user.push(component(tmp_path / "calc.wasm"), "calc:1")
        assert store.seen
        assert not any("authorization" in one.headers for one in store.seen)


def test_plain_http_elsewhere_is_refused_along_redirects(registry: OwnRegistry, user: User) -> None:
    registry.add("calc", "1", LAYER)

    def hook(seen: Seen) -> Answer | None:
        moved = {"Location": "http://198.51.100.1/blob"}
        return Answer(302, headers=moved) if "/blobs/" in seen.path else None

    registry.hook = hook
    with pytest.raises(DistributionError, match=r"198\.51\.100\.1 uses plain HTTP"):
        user.pull("calc:1")
    assert_nothing(user)


async def test_a_public_registry_leads_to_no_private_address() -> None:
    settings = RegistrySettings(url="https://registry.example")
    rule = RegistryRule(settings, AddressRule(is_local=False))
    own, other = rule.origin, Origin("https", "storage.example", 443)
    for address in ("10.0.0.1", "127.0.0.1", "169.254.169.254", "::1"):
        assert not rule.permit(other)(address)
        assert rule.permit(own)(address), "the user chose the registry"
    assert rule.permit(other)("9.9.9.9")
    assert rule.refusal(Origin("http", "127.0.0.1", 80))


def test_plain_http_needs_insecure_even_on_this_machine(registry: OwnRegistry, user: User) -> None:
    registry.add("calc", "1", LAYER)
    user.home.config.write_text('[trust]\nunsigned = ["*"]\n')
    with pytest.raises(DistributionError, match=r"set url = .* and insecure = true"):
        user.pull("calc:1")
    assert registry.seen == []


# Pushes


def test_a_push_is_sent_in_chunks(registry: OwnRegistry, user: User, tmp_path: Path) -> None:
    file = component(tmp_path / "calc.wasm", 950_000)
    pushed = user.push(file, "calc:1")
    parts = [one for one in registry.requests("PATCH") if len(one.body) > 1000]
    assert [len(one.body) for one in parts] == [100_000] * 9 + [50_000]
    assert [one.headers["content-range"] for one in parts][:2] == ["0-99999", "100000-199999"]
    assert registry.blobs[digest_of(file.read_bytes())] == file.read_bytes()
    assert digest_of(registry.manifests["calc", "1"]) == pushed.reference.digest
    registry.seen.clear()
    assert not user.push(file, "calc:1").was_sent
    assert registry.requests("PATCH") == []


def test_an_upload_that_breaks_is_continued_where_it_was(
    registry: OwnRegistry, user: User, tmp_path: Path
) -> None:
    registry.cut_uploads = 2
    file = component(tmp_path / "calc.wasm", 500_000)
    user.push(file, "calc:1")
    assert registry.blobs[digest_of(file.read_bytes())] == file.read_bytes()


def test_a_push_that_failed_is_taken_up_by_the_next(
    registry: OwnRegistry, user: User, tmp_path: Path
) -> None:
    file = component(tmp_path / "calc.wasm", 1_000_000)
    count = itertools.count()

    def dead(seen: Seen) -> Answer | None:
        is_late = seen.method == "PATCH" and next(count) >= 5
        is_status = seen.method == "GET" and "/uploads/" in seen.path
        return Answer(500, cut=0) if is_late or is_status else None

    registry.hook = dead
    with pytest.raises(RegistryUnavailable, match="push again to continue"):
        user.push(file, "calc:1")
    assert registry.manifests == {}
    registry.hook = lambda _: None
    registry.seen.clear()
    user.push(file, "calc:1")
    assert registry.blobs[digest_of(file.read_bytes())] == file.read_bytes()


def test_the_tag_comes_after_the_signature(
    registry: OwnRegistry, user: User, tmp_path: Path, key: Any
) -> None:
    pushed = user.push(component(tmp_path / "calc.wasm"), "calc:1", key)
    paths = [one.path for one in registry.requests("PUT", "/manifests/")]
    digest = pushed.reference.digest
    tags = (digest, signature_tag(digest), "1")
    assert paths == [f"/v2/calc/manifests/{one}" for one in tags]


def test_a_file_that_is_not_a_component_is_not_pushed(
    registry: OwnRegistry, user: User, tmp_path: Path
) -> None:
    for name, data in (("calc.py", b"print()"), ("x.zip", b"PK\3\4" + b"x" * 60), ("empty", b"")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DistributionError, match=r"neither a \.wasm component nor a bundle"):
            user.push(tmp_path / name, "calc:1")
    with pytest.raises(DistributionError, match="cannot be read: Is a directory"):
        user.push(tmp_path, "calc:1")
    with pytest.raises(DistributionError, match="cannot be read: No such file"):
        user.push(tmp_path / "missing", "calc:1")
    assert registry.seen == []
