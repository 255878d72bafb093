import json
import stat

import httpx
import pytest
from typer.testing import CliRunner

from maskedlark.cli.parameters import app
from maskedlark.clock import SystemClock
from maskedlark.features import Encoder
from maskedlark.parameter_service.app import create_app
from maskedlark.parameter_service.config import read
from maskedlark.parameter_service.publisher import Pinned
from maskedlark.parameter_service.store import Store
from maskedlark.parameters import document
from maskedlark.parameters.decoys import decoy_rows
from maskedlark.web import key_file, remote, serving
from tests.unit.web.service import AppTransport

RUN = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke
COMMANDS = ["keys", "draft", "sign", "publish", "show", "verify", "init", "serve"]


class World:
    """Keys, settings and a service, in one folder; the commands reach the service without a socket."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.public = {name: self.run("keys", self.path(f"{name}.key")).output.strip() for name in NAMES}
        self.path("settings.toml").write_text(
            SETTINGS.format(
                **{name.replace("-", "_"): key for name, key in self.public.items()}, fake="07" * 100
            )
        )
        origin = key_file.public(self.public["origin"])
        self.store = Store(self.path("parameters.db"))
        service_key = key_file.read(self.path("service.key"))
        served = create_app(self.store, service_key, SystemClock(), Pinned({"ads.example": origin}))
        transport = AppTransport(served)
        monkeypatch.setattr(
            remote, "httpx", _Httpx(lambda **_: httpx.Client(transport=transport, timeout=None))
        )

    def path(self, name):
        return self.folder / name

    def run(self, *arguments, code=0):
        done = RUN(app, [str(each) for each in arguments])
        assert done.exit_code == code, done.output
        return done

    def pins(self, origin="origin", service="service"):
        return ["--service-key", self.public[service], "--origin-key", self.public[origin]]

    @property
    def keys(self):
        return ["--document-key", self.public["origin"], "--request-key", self.path("requests.key")]

    def draft(self, *arguments, out="draft.json", code=0):
        return self.run("draft", self.path("settings.toml"), "--out", self.path(out), *arguments, code=code)

    def publish(self, name="draft.json", key="origin.key", code=0):
        arguments = ["--service", "http://x", "--service-key", self.public["service"]]
        arguments += ["--key", self.path(key)] if key else []
        return self.run(
            "publish", self.path(name), *arguments, "--out", self.path(f"published-{name}"), code=code
        )


class _Httpx:
    """httpx with another Client."""

    def __init__(self, make):
        self.Client = make

    def __getattr__(self, name):
        return getattr(httpx, name)


NAMES = ["origin", "requests", "service", "helper-0", "helper-1"]
SETTINGS = """
origin = "ads.example"
keys = ["campaign"]
decoys = [{{ keys = {{ campaign = "spring" }} }}, {{ tag = "clicks", columns = "{fake}" }}]
[helpers]
helper-0 = "{helper_0}"
helper-1 = "{helper_1}"
[values]
purchase = [0, 50000]
[models.clicks]
columns = [{{kind = "bytes", count = 100}}]
candidates = "pair"
feature_noise = {{ epsilon = 0.1, sensitivity = 10 }}
"""


@pytest.fixture
def world(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    yield world
    world.store.close()


def one_line(done, word):
    assert done.stderr.count("\n") == 1, done.stderr
    assert word in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_an_example(command):
    shown = RUN(app, [command, "--help"])
    assert shown.exit_code == 0
    assert f"Example: maskedlark parameters {command} " in " ".join(shown.output.split())


def test_the_commands_are_these():
    assert [getattr(command.callback, "__name__", None) for command in app.registered_commands] == COMMANDS


def test_a_key_is_its_owner_s_and_never_overwritten(world):
    path = world.path("origin.key")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key_file.read(path).verifying.public.hex() == world.public["origin"]
    one_line(world.run("keys", path, code=1), "never overwritten")


def test_a_draft_says_what_it_means(world):
    shown = " ".join(world.draft(*world.keys).output.split())
    for words in (
        "ads.example, version 1",
        f"{world.public['origin']} signs the next document, and nothing else",
        f"{world.public['requests']} signs requests to helpers, and no document",
        "unless all 2 collude",
        "at least 100 records",
        "(ε, δ) = (8, 1e-06)",
        "purchase from 0 to 50000: one record moves a sum by up to 50000",
        "a helper can guess labels better than chance",
        "ε = 0.1 a feature is ε = 10 for the whole vector of 100",
        "It protects no label",
        "5 % of sources send a fake as well, from 2 public decoy rows",
    ):
        assert words in shown
    drafted = document.decode(world.path("draft.json").read_bytes())
    assert drafted.document_key == world.public["origin"]
    assert drafted.request_key == world.public["requests"]
    assert drafted.models[0].labels[0].kind == "binary"


ENCODER = Encoder.fit({"age": [20, 60] * 50, "device": ["phone", "desktop"] * 50})
DECOYS = "campaign,age,device\nspring,30,phone\nautumn,40,desktop\nspring,50,phone\n"
DRAWN = f"""
[models.clicks]
columns = [{{kind = "bytes", count = {len(ENCODER)}}}]
encoder = "{ENCODER.digest.hex()}"
"""
KEYED = 'keys = ["campaign"]\n[values]\npurchase = [0, 5]\n'


def draft_of(world, settings, *arguments, code=0):
    """What is printed when these settings are drafted."""
    helpers = "\n".join(f'{name} = "{world.public[name]}"' for name in NAMES[3:])
    text = f'origin = "ads.example"\n{settings}\n[helpers]\n{helpers}\n'
    world.path("settings.toml").write_text(text)
    ENCODER.save(world.path("encoder.json"))
    world.path("decoys.csv").write_text(DECOYS)
    files = [world.path(each) if each.endswith(("csv", "json")) else each for each in arguments]
    return world.run("draft", world.path("settings.toml"), *world.keys, *files, code=code)


def drafted(world, *arguments):
    """The document that is drafted, after its explanation was checked."""
    done = draft_of(world, *arguments)
    found = document.decode(done.stdout.strip().encode())
    assert ("fakes none" in " ".join(done.stderr.split())) == (found.fake_rate == 0)
    return found


def test_fakes_are_made_of_the_rows_of_a_table(world):
    files = ["--decoys", "decoys.csv", "--encoder", "encoder.json"]
    found = drafted(world, KEYED + DRAWN, *files)
    rows = ENCODER.encode({"age": [30, 40, 50], "device": ["phone", "desktop", "phone"]})
    assert found.fake_rate == 0.05
    assert [each.keys for each in found.decoys[:3]] == [
        {"campaign": c} for c in ("spring", "autumn", "spring")
    ]
    assert [(each.tag, each.columns) for each in found.decoys[3:]] == [
        ("clicks", row.tobytes().hex()) for row in rows
    ]
    more = drafted(world, f"fake_rate = 0.2\n{KEYED}{DRAWN}", *files)
    assert (more.fake_rate, more.decoys) == (0.2, found.decoys)


def test_decoys_are_made_up_from_an_encoder_and_of_no_keys(world):
    found = drafted(world, f"[values]\npurchase = [0, 5]\n{DRAWN}", "--encoder", "encoder.json")
    assert found.fake_rate == 0.05
    assert found.decoys[0].keys == {}
    assert [each.columns for each in found.decoys[1:]] == [r.tobytes().hex() for r in decoy_rows(ENCODER)]


@pytest.mark.parametrize(
    ("settings", "files", "word"),
    [
        (KEYED, [], "no decoys with keys for fakes: draft with --decoys"),
        (KEYED, ["--encoder", "encoder.json"], "no decoys with keys for fakes: draft with --decoys"),
        (DRAWN, [], "no decoys of clicks: name an encoder in it and give that"),
        (DRAWN, ["--decoys", "decoys.csv"], "no decoys of clicks: name an encoder in it and give that"),
    ],
)
def test_a_draft_without_decoys_says_what_to_do(world, settings, files, word):
    said = draft_of(world, settings, *files, code=1)
    one_line(said, word)
    assert "or fake_rate = 0" in said.stderr


def test_there_are_no_fakes_where_they_are_switched_off_or_forbid_sums_without_noise(world):
    assert drafted(world, f"fake_rate = 0\n{KEYED}").fake_rate == 0
    response = "randomised_response = {epsilon = 1}\n"
    noise = "feature_noise = {epsilon = 1, sensitivity = 255}\n"
    assert drafted(world, DRAWN + response + noise).fake_rate == 0
    encoder = ["--encoder", "encoder.json"]
    assert drafted(world, DRAWN + response + noise, *encoder).decoys == ()
    assert drafted(world, DRAWN + response, *encoder).fake_rate == 0.05  # Needs noise with and without fakes.


def test_a_draft_on_stdout_is_the_document_alone(world):
    done = world.run("draft", world.path("settings.toml"), *world.keys)
    assert document.decode(done.stdout.strip().encode()).version == 1
    assert "helpers" in done.stderr


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("k = 0", "k: Input should be"),
        ("version = 2", "not for you to set"),
        ("budget = { epsilon = 0 }", "budget.epsilon"),
        ("colour = 1", "colour"),
        ("valid_days = 0", "valid_days"),
        ("valid_days = 3\nnot_after = 5", "give one of them"),
        ("k = 1979-05-27", "date or time"),
        ("k =", "no TOML"),
    ],
)
def test_a_bad_draft_is_one_clear_line(world, line, word):
    path = world.path("settings.toml")
    path.write_text(line + "\n" + path.read_text())
    one_line(world.draft(*world.keys, code=1), word)
    assert not world.path("draft.json").exists()


def test_publish_show_verify(world):
    world.draft(*world.keys)
    assert "published version 1 of ads.example" in world.publish().output
    assert world.publish().exit_code == 0  # safe to repeat
    previous = ["--previous", world.path("published-draft.json")]
    world.draft(*previous, out="second.json")
    world.publish("second.json")
    reach = ["--service", "http://x", *world.pins(), "--cache", world.path("cache")]
    assert "version 2" in world.run("show", "ads.example", *reach).output
    shown = json.loads(world.run("show", "ads.example", *reach, "--version", 1, "--json").output)
    assert (shown["version"], shown["previous"]) == (1, None)
    one_line(world.run("show", "ads.example", *reach, "--version", 3, code=1), "the latest version is 2")
    verified = world.run("verify", "ads.example", *reach, "--save", world.path("chain.json")).output
    assert verified.count("verified") == 2
    file = ["--file", world.path("chain.json")]
    assert world.run("verify", "ads.example", *file, *world.pins()).output == verified
    found = json.loads(world.run("verify", "ads.example", *file, *world.pins(), "--json").stdout)
    assert [f"version {each['version']}  {each['digest']}  verified" for each in found["verified"]] == (
        verified.splitlines()
    )
    one_line(world.run("verify", "other.example", *file, *world.pins(), code=1), "not of other")
    one_line(world.run("verify", "ads.example", *file, *world.pins("service"), code=1), "BadSignature")
    one_line(world.run("verify", "ads.example", *file, *world.pins(service="origin"), code=1), "BadSignature")
    # Dropping the first, or turning the order, breaks it.
    kept = json.loads(world.path("chain.json").read_text())
    for wrong in (kept[1:], kept[::-1], [kept[0], kept[0]]):
        world.path("chain.json").write_text(json.dumps(wrong))
        world.run("verify", "ads.example", *file, *world.pins(), code=1)
    world.path("chain.json").write_text("[]")
    one_line(world.run("verify", "ads.example", *file, *world.pins(), code=1), "no document")


def test_a_document_is_signed_where_there_is_no_network(world):
    world.draft(*world.keys)
    signed = ["sign", world.path("draft.json"), "--key", world.path("origin.key")]
    assert "signs requests to helpers" in world.run(*signed, "--out", world.path("signed.json")).output
    assert world.run(*signed).stdout == world.path("signed.json").read_text() + "\n"
    assert "published version 1" in world.publish("signed.json", key=None).output
    one_line(world.publish(key=None, code=1), "sign the draft with `maskedlark parameters sign`")


def test_the_request_key_signs_no_draft(world):
    world.draft(*world.keys)
    sign = ["sign", world.path("draft.json"), "--key", world.path("requests.key")]
    said = "BadSignature: this is the request key, which signs no documents: sign with the document key"
    one_line(world.run(*sign, code=1), said)
    one_line(world.publish(key="requests.key", code=1), said)


def test_the_request_key_is_turned_over_by_the_document_key(world):
    world.draft(*world.keys)
    world.publish()
    turn = ["--previous", world.path("published-draft.json"), "--request-key", world.public["helper-1"]]
    world.draft(*turn, out="second.json")
    one_line(
        world.publish("second.json", key="requests.key", code=1), "the document key that the version before"
    )
    world.publish("second.json")
    found = document.parse(json.loads(world.path("published-second.json").read_text())["document"])
    assert (found.document_key, found.request_key) == (world.public["origin"], world.public["helper-1"])


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ([], "document_key: Field required; request_key: Field required"),
        (["--document-key", "{origin}", "--request-key", "{origin}"], "are the same key"),
        (["--document-key", "none.key"], "'none.key' is no public key"),
    ],
)
def test_a_draft_without_its_two_keys_is_refused(world, keys, word):
    one_line(world.draft(*[each.format(**world.public) for each in keys], code=1), word)


def test_a_document_key_is_turned_over_by_the_old_one(world):
    world.draft(*world.keys)
    world.publish()
    turn = ["--previous", world.path("published-draft.json"), "--document-key", world.path("helper-1.key")]
    world.draft(*turn, out="second.json")
    one_line(world.publish("second.json", key="helper-1.key", code=1), "BadSignature")
    world.publish("second.json")
    world.draft("--previous", world.path("published-second.json"), out="third.json")
    one_line(world.publish("third.json", code=1), "BadSignature")
    world.publish("third.json", key="helper-1.key")


def test_refusals_are_one_line_and_exit_code_1(world):
    one_line(world.publish("missing.json", code=1), "No such file")
    world.draft(*world.keys)
    world.path("origin.key").chmod(0o644)
    one_line(world.publish(code=1), "chmod 600")
    world.path("origin.key").chmod(0o600)
    one_line(world.publish(key="helper-0.key", code=1), "BadSignature")
    reach = ["--service", "http://x"]
    one_line(world.run("show", "ads.example", *reach, *world.pins(), code=1), "UnknownOrigin")
    pins = ["--service-key", "short", "--origin-key", "short"]
    one_line(world.run("show", "ads.example", *reach, *pins, code=1), "64 hexadecimal digits")


def test_usage_is_exit_code_2(world):
    world.run("verify", "ads.example", *world.pins(), code=2)
    world.run("show", code=2)
    world.run("nothing", code=2)
    world.run("serve", "--port", "99999", code=2)


PINS = """
key = "service.key"
database = "sqlite:///new.db"
"""


def configured(world, text=""):
    path = world.path("parameters.toml")
    path.write_text(PINS + text)
    return ["--config", path]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[", "no TOML"),
        ("[other]\n", "other is not known; there are key, database, origins, helpers, serving"),
        ("origins = 3\n", "origins: "),
        ("[origins]\na = 3\n", "origins.a: "),
        ('[helpers]\na = "00"\n', "helpers.a: "),
        (f'[helpers]\na = "{"00" * 32}"\n', "small order"),
    ],
)
def test_bad_settings_do_not_start_a_service(world, text, word):
    one_line(world.run("serve", *configured(world, text), code=1), word)
    assert not world.path("new.db").exists()


def test_pins_are_read_by_name(world):
    key = world.public["origin"]
    _, path = configured(world, f'[origins]\n"ads.example" = "{key}"\n[helpers]\nhelper-0 = "{key}"\n')
    expected = key_file.public(key)
    found = read(path)
    assert found.pinned == Pinned({"ads.example": expected}, {"helper-0": expected})
    assert (found.key, found.database) == (world.path("service.key"), f"sqlite:///{world.path('new.db')}")


def test_serve_closes_its_store(world, monkeypatch):
    seen = []
    monkeypatch.setattr(
        serving, "serve", lambda _, settings, **_more: seen.append((settings.host, settings.port))
    )
    world.run("serve", *configured(world))
    world.run("serve", *configured(world, "[serving]\nport = 7\n"), "--host", "::1")
    assert seen == [("127.0.0.1", 0), ("::1", 7)]
    assert not world.path("new.db-wal").exists()


def test_init_makes_settings_that_serve(world, monkeypatch):
    folder, pins = world.path("service"), world.public
    said = ["--origin", f"ads.example={pins['origin']}", "--helper", f"helper-0={pins['helper-0']}"]
    public = world.run("init", folder, *said).stdout.strip()
    found = read(folder / "parameters.toml")
    assert key_file.read(found.key).verifying.public.hex() == public
    assert {name: key.public.hex() for name, key in found.pinned.helpers.items()} == {
        "helper-0": pins["helper-0"]
    }
    assert [*found.pinned.origins] == ["ads.example"]
    monkeypatch.setattr(serving, "serve", lambda *_, **_more: None)
    world.run("serve", "--config", folder / "parameters.toml")
    assert (folder / "parameters.sqlite").exists()
    one_line(world.run("init", folder, code=1), "exists already")


def test_init_takes_a_key_that_was_made_before(world):
    done = world.run("init", world.path("service"), "--key", world.path("service.key"))
    assert done.stdout.strip() == world.public["service"]
    assert read(world.path("service") / "parameters.toml").key == world.path("service.key")


@pytest.mark.parametrize("said", ["ads.example", "ads.example=12", "Ads Example={key}"])
def test_init_refuses_pins_that_are_none(world, said):
    given = said.format(key=world.public["origin"])
    one_line(world.run("init", world.path("service"), "--origin", given, code=1), "--origin ")
    assert not world.path("service").exists()
