"""Files damaged by accident: a changed bit, a lost end."""

from contextlib import contextmanager

import pytest
from samples import CHECKPOINT_FILES, damage, engine_of, newest_checkpoint, tries

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.errors import EncoderClsError
from encoder_cls.run.checkpoint_files import load_newest


@contextmanager
def damaged(path, draw):
    """Damage a file while a block runs; a file that the block writes again stays as it is."""
    content = damage(path, draw)
    changed = path.read_bytes()
    yield
    if path.exists() and path.read_bytes() == changed:
        path.write_bytes(content)


@tries(1000)
def test_bit_flips_model(space, draw, number):
    """One changed bit, or a lost end, in the model: it is refused."""
    run = space.reference("labels")
    with (
        damaged(run / "model" / "model.safetensors", draw),
        pytest.raises(EncoderClsError) as refused,
    ):
        load_classifier(run, device="cpu", engine=engine_of(number))
    assert str(run) in str(refused.value), f"{refused.value} does not name the folder"


@pytest.mark.parametrize("name", CHECKPOINT_FILES)
@tries(500)
def test_bit_flips_checkpoint(space, draw, name, number):
    """A changed bit, or a lost end, in the newest checkpoint: the one before is taken."""
    run = space.begun("labels")
    newest = newest_checkpoint(run)
    with damaged(newest / name, draw):
        found, warnings = load_newest(run / "checkpoints")
    assert len(warnings) == 1, warnings
    assert str(newest) in warnings[0], warnings
    assert found, "no checkpoint was found"
    assert found.state.step < int(newest.name.partition("-")[2])


@tries(60)
def test_bit_flips_commands(space, draw, number):
    """The same through commands: predict refuses; resume names the checkpoint, and is exact."""
    run = space.copy("labels", is_begun=True)
    engine = engine_of(number)
    with damaged(run / "model" / "model.safetensors", draw):
        space.predict(run, engine, "rain").check_error(1, str(run))
    newest = newest_checkpoint(run)
    with damaged(newest / CHECKPOINT_FILES[number % len(CHECKPOINT_FILES)], draw):
        ended = space.finish("labels", run)
        assert f"warning: {newest}: passed over, damaged" in ended.err, ended.err
