import tomllib

from maskedlark.cli.demo_steps.people import encoder, people
from maskedlark.cli.demo_steps.reporting import MODEL, settings


def test_decoys_are_rows_of_the_declared_model():
    declared = tomllib.loads(settings(encoder(people(1500))))
    rows = [decoy["columns"] for decoy in declared["decoys"] if decoy.get("tag") == MODEL]
    assert len(set(rows)) == len(rows) > 1
    assert {len(bytes.fromhex(row)) for row in rows} == {declared["models"][MODEL]["columns"][0]["count"]}
