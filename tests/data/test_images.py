"""Image files: decoding, the cache, and folders of classes."""

import io
import os

import numpy as np
import pytest
from PIL import Image

from tuneparts.core.errors import DataError, DataMissingError
from tuneparts.data import _images as image_files
from tuneparts.data._images import ImageFiles
from tuneparts.data.config import Data
from tuneparts.data.task import StoredImages


@pytest.fixture
def files(tmp_path, write_image):
    names = [f"{i:03d}.png" for i in range(5)]
    for i, name in enumerate(names):
        write_image(tmp_path / "images" / name, 10 * i)
    return ImageFiles(tmp_path / "images", names, np.arange(5))


def _cached(cache_dir):
    return sorted((cache_dir / "decoded").iterdir())


@pytest.mark.parametrize("block", [2, 256])
def test_decoding_keeps_order_and_pixels(files, monkeypatch, block):
    monkeypatch.setattr(image_files, "_BLOCK", block)
    images = np.asarray(files.examples(image_size=None, title="t").inputs)
    assert images.shape == (5, 3, 8, 8)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(images[:, 0, 0, 0], [0, 10, 20, 30, 40])


def test_colours_become_channels_in_rgb_order(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    files = ImageFiles(tmp_path, ["a.png"], np.zeros(1, np.int64))
    images = np.asarray(files.examples(image_size=None, title="t").inputs)
    np.testing.assert_array_equal(images[0], pixels.transpose(2, 0, 1))


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1"])
def test_other_colour_modes_become_rgb(tmp_path, mode):
    name = "a.jpg" if mode == "CMYK" else "a.png"
    Image.new("RGB", (8, 8), (255, 255, 255)).convert(mode).save(tmp_path / name)
    files = ImageFiles(tmp_path, [name], np.zeros(1, np.int64))
    images = np.asarray(files.examples(image_size=None, title="t").inputs)
    assert images.shape == (1, 3, 8, 8)
    assert images.min() >= 250


@pytest.mark.parametrize(("size", "scaled"), [((24, 8), (12, 4)), ((8, 24), (4, 12))])
def test_the_shorter_side_is_scaled_and_the_centre_kept(tmp_path, size, scaled):
    width, height = size
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "long.png")
    files = ImageFiles(tmp_path, ["long.png"], np.zeros(1, np.int64))
    images = np.asarray(files.examples(image_size=4, title="t").inputs)
    left, top = (scaled[0] - 4) // 2, (scaled[1] - 4) // 2
    whole = Image.fromarray(pixels).resize(scaled, Image.Resampling.BILINEAR)
    expected = np.asarray(whole.crop((left, top, left + 4, top + 4)))
    np.testing.assert_array_equal(images[0], expected.transpose(2, 0, 1))


def test_a_second_load_decodes_nothing(files, monkeypatch, cache_dir):
    files.examples(image_size=8, title="t")
    monkeypatch.setattr(image_files, "_decode_one", lambda *_: pytest.fail("decoded again"))
    files.examples(image_size=8, title="t")
    assert len(_cached(cache_dir)) == 1


def test_a_changed_file_or_size_is_decoded_again(files, write_image, cache_dir):
    files.examples(image_size=8, title="t")
    files.examples(image_size=4, title="t")
    write_image(files.folder / "002.png", 99)
    images = np.asarray(files.examples(image_size=8, title="t").inputs)
    assert images[2, 0, 0, 0] == 99
    assert len(_cached(cache_dir)) == 3


def test_a_damaged_cache_is_made_again(files, cache_dir):
    files.examples(image_size=8, title="t")
    (path,) = _cached(cache_dir)
    path.write_bytes(path.read_bytes()[:200])
    images = np.asarray(files.examples(image_size=8, title="t").inputs)
    np.testing.assert_array_equal(images[:, 0, 0, 0], [0, 10, 20, 30, 40])


def test_a_cache_with_another_number_of_images_is_made_again(files, cache_dir):
    files.examples(image_size=8, title="t")
    (path,) = _cached(cache_dir)
    np.save(path, np.zeros((3, 3, 8, 8), np.uint8))
    images = np.asarray(files.examples(image_size=8, title="t").inputs)
    np.testing.assert_array_equal(images[:, 0, 0, 0], [0, 10, 20, 30, 40])


def test_a_moved_folder_is_not_decoded_again(files, tmp_path, monkeypatch):
    files.examples(image_size=8, title="t")
    files.folder.rename(tmp_path / "moved")
    monkeypatch.setattr(image_files, "_decode_one", lambda *_: pytest.fail("decoded again"))
    ImageFiles(tmp_path / "moved", files.names, files.labels).examples(image_size=8, title="t")


@pytest.mark.parametrize("keep", [0, 50, 200])
def test_a_broken_jpeg_is_named_and_leaves_no_cache(files, cache_dir, keep):
    noise = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "JPEG")
    assert len(buffer.getvalue()) > 300
    (files.folder / "003.png").write_bytes(buffer.getvalue()[:keep])
    with pytest.raises(DataError, match=r"003\.png cannot be decoded"):
        files.examples(image_size=8, title="t")
    assert _cached(cache_dir) == []


def test_images_of_several_sizes_need_an_image_size(files, write_image):
    write_image(files.folder / "004.png", 40, size=(6, 9))
    with pytest.raises(DataError, match=r"004\.png is 6 x 9, .* `image_size`"):
        files.examples(image_size=None, title="t")
    assert files.examples(image_size=8, title="t").inputs.shape == (5, 3, 8, 8)


def test_no_images_are_refused(tmp_path):
    empty = ImageFiles(tmp_path, [], np.zeros(0, np.int64))
    with pytest.raises(DataError, match="t holds no images"):
        empty.examples(image_size=8, title="t")


def test_only_large_sets_stay_on_disk(files, monkeypatch):
    loaded = files.examples(image_size=None, title="t").inputs
    assert isinstance(loaded, np.ndarray)
    monkeypatch.setattr(image_files, "IN_MEMORY_BYTES", loaded.nbytes - 1)
    assert isinstance(files.examples(image_size=None, title="t").inputs, StoredImages)


@pytest.mark.parametrize("form", ["EPS", "GIF", "ICO", "PCX", "PDF", "PPM", "TGA", "TIFF"])
def test_what_is_no_named_format_is_refused_whatever_its_name_says(tmp_path, form):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg", format=form)
    files = ImageFiles(tmp_path, ["a.jpg"], np.zeros(1, np.int64))
    with pytest.raises(DataError, match=r"a\.jpg cannot be decoded"):
        files.examples(image_size=None, title="t")


def test_an_image_of_a_city_in_one_file_is_refused_before_it_is_decoded(files, monkeypatch):
    monkeypatch.setattr(image_files, "_MOST_PIXELS", 63)
    with pytest.raises(DataError, match="8 x 8 pixels are too many"):
        files.examples(image_size=None, title="t")


@pytest.fixture
def animals(tmp_path, write_image):
    """Cats are dark and dogs bright; the last digits of a level tell the image."""
    folder = tmp_path / "animals"
    for part, num in (("train", 6), ("test", 3)):
        for i in range(num):
            write_image(folder / part / "cat" / f"{i}.png", i)
            write_image(folder / part / "dog" / f"{i}.PNG", 200 + i)
    return folder


def test_classes_are_sorted_and_images_follow_them(animals):
    task = Data(name=f"folder:{animals}").load()
    levels = [0, 1, 2, 3, 4, 5, 200, 201, 202, 203, 204, 205]
    assert task.train.inputs[:, 0, 0, 0].tolist() == levels
    assert task.train.labels.tolist() == [0] * 6 + [1] * 6
    assert (task.num_classes, task.in_shape, len(task.test)) == (2, (3, 8, 8), 6)


def test_val_serves_where_there_is_no_test(animals):
    (animals / "test").rename(animals / "val")
    assert len(Data(name=f"folder:{animals}").load().test) == 6


def test_other_files_are_passed_over(animals):
    (animals / "train" / "cat" / "notes.txt").write_text("not an image")
    assert len(Data(name=f"folder:{animals}").load().train) == 12


def test_a_relative_path_starts_from_the_data_folder(animals, data_dir):
    animals.rename(data_dir / "animals")
    assert len(Data(name="folder:animals").load().train) == 12
    root = str(data_dir.parent)
    assert len(Data(name="folder:data/animals", root=root).load().train) == 12


def test_images_are_scaled_on_request(animals):
    assert Data(name=f"folder:{animals}", image_size=5).load().in_shape == (3, 5, 5)


def test_large_folders_stay_on_disk_through_the_split(animals, monkeypatch):
    monkeypatch.setattr(image_files, "IN_MEMORY_BYTES", 0)
    config = Data(name=f"folder:{animals}", num_val=4, num_train=6)
    task = config.load()
    assert isinstance(task.train.inputs, StoredImages)
    monkeypatch.setattr(image_files, "IN_MEMORY_BYTES", 1 << 30)
    expected = config.load()
    np.testing.assert_array_equal(np.asarray(task.val.inputs), expected.val.inputs)
    np.testing.assert_array_equal(task.train.labels, expected.train.labels)


def test_a_class_that_only_the_test_part_has_is_refused(animals, write_image):
    write_image(animals / "test" / "emu" / "0.png", 5)
    with pytest.raises(DataError, match="classes that the training part lacks: emu"):
        Data(name=f"folder:{animals}").load()


def test_a_part_without_class_folders_is_refused(tmp_path):
    (tmp_path / "empty" / "train").mkdir(parents=True)
    (tmp_path / "empty" / "test").mkdir()
    with pytest.raises(DataError, match=r"empty/train must hold one folder of images per class"):
        Data(name=f"folder:{tmp_path / 'empty'}").load()


def test_a_folder_that_is_not_there_names_where_it_was_looked_for(data_dir):
    with pytest.raises(DataMissingError, match=f"nowhere` was not found in {data_dir}"):
        Data(name="folder:nowhere").load()


def test_cifar10_as_an_image_folder(data_dir, write_image):
    for part in ("train", "test"):
        for k, name in enumerate(["airplane", "automobile"]):
            write_image(data_dir / "cifar10" / part / name / "0.png", 40 * k, size=(32, 32))
    task = Data(name="cifar10").load()
    assert task.in_shape == (3, 32, 32)
    assert task.train.inputs[:, 0, 0, 0].tolist() == [0, 40]


def test_pipes_are_passed_over_and_names_may_have_any_encoding(animals, write_image):
    os.mkfifo(animals / "train" / "cat" / "pipe.png")
    odd = os.fsdecode(b"caf\xe9.png")
    (animals / "train" / "cat" / "0.png").rename(animals / "train" / "cat" / odd)
    assert len(Data(name=f"folder:{animals}").load().train) == 12
