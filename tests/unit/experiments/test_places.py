"""Where data is looked for, and what is said when it is not there."""

import gzip
import hashlib
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from experiments.data import places
from experiments.data.places import File, NotHere

DATA = b"some rows"
SHA = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """Nothing beside the repository, and an empty cache."""
    monkeypatch.delenv(places.VARIABLE, raising=False)
    monkeypatch.setattr(places, "_BESIDE", tmp_path / "beside")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def mirror():
    served = {"/good.gz": gzip.compress(DATA), "/bad.gz": gzip.compress(b"other")}

    class Mirror(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path in served else 404)
            self.end_headers()
            self.wfile.write(served.get(self.path, b""))

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Mirror) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def put(folder, data=DATA):
    folder.mkdir(parents=True)
    (folder / "f.gz").write_bytes(gzip.compress(data))


@pytest.mark.parametrize("where", ["beside", "cache/maskedlark"])
def test_it_is_found(tmp_path, where):
    put(tmp_path / where)
    assert places.read(File("f.gz", SHA, "a source")) == DATA


def test_a_named_folder_is_the_only_one(tmp_path, monkeypatch):
    put(tmp_path / "beside")
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "named"))
    with pytest.raises(NotHere, match=r"f.gz \(a source\) is needed: put it"):
        places.read(File("f.gz", SHA, "a source", "http://127.0.0.1:1/f.gz"))
    put(tmp_path / "named")
    assert places.read(File("f.gz", SHA, "a source")) == DATA


def test_other_data_is_refused(tmp_path):
    put(tmp_path / "beside", b"other rows")
    with pytest.raises(NotHere, match="other data"):
        places.read(File("f.gz", SHA, "a source"))
    (tmp_path / "beside" / "f.gz").write_bytes(b"no gzip")
    with pytest.raises(NotHere, match="no gzip"):
        places.read(File("f.gz", SHA, "a source"))


def test_a_mirror_fills_the_cache(tmp_path, mirror):
    file = File("a/f.gz", SHA, "a source", f"{mirror}/good.gz")
    assert places.read(file) == DATA
    assert [each.name for each in (tmp_path / "cache" / "maskedlark" / "a").iterdir()] == ["f.gz"]
    assert places.read(file._replace(mirror=None)) == DATA


@pytest.mark.parametrize("path", ["/bad.gz", "/none.gz"])
def test_a_mirror_with_other_data_or_none_fills_nothing(tmp_path, mirror, path):
    with pytest.raises(NotHere):
        places.read(File("f.gz", SHA, "a source", mirror + path))
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_cannot_be_written_is_gone_without(tmp_path, mirror):
    (tmp_path / "cache").write_text("no folder")
    file = File("a/f.gz", SHA, "a source", f"{mirror}/good.gz")
    assert places.read(file) == places.read(file) == DATA


def test_without_a_network_one_line_says_what_to_do():
    with pytest.raises(NotHere) as error:
        places.read(File("f.gz", SHA, "a source", "http://127.0.0.1:1/f.gz"))
    assert "\n" not in str(error.value)
    assert "f.gz" in str(error.value)
    assert places.VARIABLE in str(error.value)
