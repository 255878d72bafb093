import os
from pathlib import Path

import pytest

from maskedlark.helper import config
from maskedlark.web.errors import BadConfig
from maskedlark.wire.signatures import VerifyingKey
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS, SERVICE_KEY

HELPERS = ", ".join(f'"{key.verifying.public.hex()}"' for key in HELPER_KEYS)
TOP = f"""
name = "helper-0"
folder = "state"
address = "https://helper-0.example"
parameter_service = "http://127.0.0.1:8000"
service_key = "{SERVICE_KEY.verifying.public.hex()}"
"""
TABLES = f"""
[origins]
"ads.example" = "{DOCUMENT_KEY.verifying.public.hex()}"
[policy]
trusted_helpers = [{HELPERS}]
max_budget = {{epsilon = 8, delta = 1e-6}}
max_coalition = {{epsilon = 40, delta = 1e-6}}
"""


def read(folder: Path, text: str):
    (folder / "helper.toml").write_text(text)
    return config.read(folder / "helper.toml")


def test_a_short_file_is_enough(tmp_path):
    found = read(tmp_path, TOP + TABLES)
    assert found.name == "helper-0"
    assert found.pinned == {"ads.example": DOCUMENT_KEY.verifying}
    assert found.service_key_public == VerifyingKey(SERVICE_KEY.verifying.public)
    assert found.policy.max_budget.epsilon == 8
    assert found.policy.min_k == 20
    assert found.compute.workers == os.cpu_count()
    assert found.functions == ()
    assert found.limits.chunk_bytes == 16 << 20
    assert found.keep_days == 180


def test_paths_are_relative_to_the_file(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "helper.toml").write_text(
        'anchor = "../marks"\ndatabase = "sqlite:///data/h.db"\n' + TOP + TABLES
    )
    monkeypatch.chdir(tmp_path)
    found = config.read(Path("deep/helper.toml"))
    assert found.keys_folder == tmp_path / "deep" / "state" / "keys"
    assert found.columns_folder == tmp_path / "deep" / "state" / "columns"
    assert found.anchor_folder == tmp_path / "deep" / ".." / "marks"
    assert found.database_url == f"sqlite:///{tmp_path / 'deep' / 'data' / 'h.db'}"


def test_certificates_are_relative_to_the_file_too(tmp_path):
    found = read(
        tmp_path, TOP + TABLES + '[serving]\ncertificate = "tls/chain.pem"\ncertificate_key = "/key.pem"\n'
    )
    assert found.serving.certificate == tmp_path / "tls" / "chain.pem"
    assert found.serving.certificate_key == Path("/key.pem")


def test_the_database_is_in_a_folder_of_its_own_and_the_anchor_elsewhere(tmp_path):
    found = read(tmp_path, TOP + TABLES)
    assert found.database_url == f"sqlite:///{tmp_path / 'state' / 'database' / 'helper.sqlite'}"
    assert found.anchor_folder == tmp_path / "state" / "anchor"


def test_what_is_absolute_stays(tmp_path):
    url = "postgresql://user:word@host/helper"
    found = read(tmp_path, f'anchor = "/marks"\ndatabase = "{url}"\n' + TOP + TABLES)
    assert (found.anchor_folder, found.database_url) == (Path("/marks"), url)
    assert "word" not in repr(found)


@pytest.mark.parametrize("key", ["name", "folder", "address", "parameter_service", "service_key"])
def test_a_missing_key_is_named_with_what_to_write(tmp_path, key):
    lines = [line for line in TOP.splitlines() if not line.startswith(key)]
    with pytest.raises(BadConfig, match=rf"{key}: Field required\. Write .*{key} = "):
        read(tmp_path, "\n".join(lines) + TABLES)


@pytest.mark.parametrize("table", ["origins", "policy"])
def test_a_missing_table_is_named_with_what_to_write(tmp_path, table):
    with pytest.raises(BadConfig, match=rf"{table}: Field required\. Write .*\[{table}\]"):
        read(tmp_path, TOP + TABLES.replace(f"[{table}]", f"[other_{table}]"))


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("colour = 1", "colour is not known; there are name, folder,"),
        ("port = 8000", "port is not known; there are name, folder,"),
        ("serving = {port = 65536}", "serving.port: "),
        ("serving = {port = '8000'}", "serving.port: "),
        ("serving = {ports = 8000}", "serving.ports is not known; did you mean 'port'? [serving] has host,"),
        ("compute.workers = 0", "compute.workers: "),
        ("fresh_s = 0", "fresh_s: "),
        ("functions = 'ours'", "functions: "),
        ("limits = {bodies = 0}", "limits.bodies: "),
        ("limits = {chunks = 1}", "did you mean 'chunk_bytes'? [limits] has chunk_bytes,"),
        ("database = 'reports'", "database: not the URL of a database"),
        ("anchor = 2026-01-01", "a date or time has no place here"),
    ],
)
def test_a_wrong_key_is_named(tmp_path, line, place):
    with pytest.raises(BadConfig) as raised:
        read(tmp_path, f"{line}\n{TOP}{TABLES}")
    assert place in str(raised.value)
    assert str(tmp_path / "helper.toml") in str(raised.value)


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ('"https://helper-0.example"', '"helper-0.example"', "address: not an address"),
        ('"https://helper-0.example"', '"https://"', "address: not an address"),
        ('"https://helper-0.example"', '"https://me:word@helper"', "address: not an address"),
        ('"https://helper-0.example"', '"http://[::1"', "address: "),
        ("http://127", "ftp://127", "parameter_service: not an address"),
        (SERVICE_KEY.verifying.public.hex(), "12", "service_key: "),
        (SERVICE_KEY.verifying.public.hex(), "00" * 32, "small order"),
        (DOCUMENT_KEY.verifying.public.hex(), "ab", "origins.ads.example: "),
        ('"ads.example"', '"Ads Example"', "origins."),
        ("epsilon = 8,", "epsilon = 0,", "policy.max_budget.epsilon: "),
        ("[policy]", "[policy]\nmink = 3", "did you mean 'min_k'? [policy] has trusted_helpers,"),
        (
            "epsilon = 8,",
            "epsilon = 8, k = 1,",
            "policy.max_budget.k is not known; [policy.max_budget] has epsilon, delta",
        ),
    ],
)
def test_a_wrong_value_is_named(tmp_path, before, after, place):
    with pytest.raises(BadConfig) as raised:
        read(tmp_path, (TOP + TABLES).replace(before, after))
    assert place in str(raised.value)


def test_a_file_that_is_none_says_so(tmp_path):
    with pytest.raises(BadConfig, match="cannot be read: No such file"):
        config.read(tmp_path / "helper.toml")
    with pytest.raises(BadConfig, match="is no TOML"):
        read(tmp_path, "name =")
    (tmp_path / "helper.toml").write_bytes(b"\xff")
    with pytest.raises(BadConfig, match="is no TOML"):
        config.read(tmp_path / "helper.toml")
