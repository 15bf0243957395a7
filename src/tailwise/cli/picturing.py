"""Pictures on the command line: a table of their paths and labels, and the folder or archive they are in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailwise.cli.options import Shared
from tailwise.cli.output import note
from tailwise.cli.reading import Labelled, Roles, load_table, split_labelled

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from tailwise.estimator import TailRegressor

BACKBONE = "resnet18"
"""Network for pictures unless another is named."""
_SHOWN = 5

Images = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder or zip archive of pictures. The only input is then the column of FILE with their paths.",
    ),
]
PathColumn = Annotated[
    str, typer.Option("--paths", metavar="COLUMN", help="With --images, column of paths inside FOLDER.")
]
ImageSize = Annotated[
    int,
    typer.Option(metavar="N", min=8, help="With --images, height and width to which pictures are resized."),
]
Augment = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="With --images, random changes of training pictures: crop-flip, strong or none.",
    ),
]
SplitColumn = Annotated[
    str | None,
    typer.Option(
        "--split",
        metavar="COLUMN",
        help="With --images, column that says train, val or test: which rows train, stop and measure.",
    ),
]
SkipBroken = Annotated[
    bool, typer.Option("--skip-broken", help="Leave out missing and broken pictures instead of stopping.")
]


@dataclass(frozen=True)
class PictureOptions:
    """Options of commands that read pictures for a fitted model."""

    images: Images = None
    paths: PathColumn = "path"
    skip_broken: SkipBroken = False


@dataclass(frozen=True)
class TrainingPictures:
    """Options of commands that train on pictures."""

    images: Images = None
    paths: PathColumn = "path"
    image_size: ImageSize = 224
    augment: Augment = "crop-flip"
    skip_broken: SkipBroken = False

    def reader(self, split: str | None = None) -> PictureReader | None:
        """Return what reads tables of pictures; None without --images."""
        if self.images is None:
            if split is not None:
                raise ValueError("--split is for pictures (--images): for tables give --valid and --test")
            return None
        size = self.image_size, self.image_size
        return PictureReader(self.images, self.paths, self.skip_broken, size, split)

    def settings(self, backbone: str) -> dict[str, Any]:
        """Return the parameters of `TailRegressor` for pictures."""
        from tailwise.lookup import check_name
        from tailwise.networks.backbones import IMAGE_BACKBONES

        name = BACKBONE if backbone == "auto" else backbone
        check_name("backbone for pictures", name, IMAGE_BACKBONES)
        augment = None if self.augment == "none" else self.augment
        return {"backbone": name, "image_size": self.image_size, "augment": augment}


@dataclass
class PictureReader:
    """Reads tables of pictures as the other commands read tables; the inputs are one column of paths."""

    root: str
    column: str
    skip: bool
    size: tuple[int, int]
    split: str | None = None
    parts: pd.Series[Any] | None = None
    """The part of each row of the table that was read last, if there is a column of parts."""

    def load_labelled(
        self,
        source: str,
        roles: Roles,
        quiet: bool,
        encoding: str | None = None,
        like: pd.DataFrame | None = None,
    ) -> Labelled:
        """Read a table as paths and targets; see `tailwise.cli.reading.load_labelled`."""
        table = self.with_paths(load_table(source, quiet, encoding), source, quiet)
        found = split_labelled(table, roles, source, quiet)
        self.parts = None
        if self.split is not None and like is None:
            self.parts = self._parts(found.inputs, source)
        return found._replace(inputs=found.inputs[[self.column]])

    def _parts(self, inputs: pd.DataFrame, source: str) -> pd.Series[Any]:
        import pandas as pd

        from tailwise.tables.columns import check_column
        from tailwise.tables.split import as_parts

        assert self.split is not None
        check_column(inputs, self.split, source)
        return pd.Series(as_parts(inputs[self.split].astype(str).tolist(), self.split, source))

    def with_paths(self, table: pd.DataFrame, source: str, quiet: bool) -> pd.DataFrame:
        """Return a table whose column of paths has the root in front, without unusable pictures if asked."""
        from tailwise.images.pictures import PictureFiles
        from tailwise.tables.columns import check_column

        files = PictureFiles(self.root)  # raises an error if there is no such folder or archive
        check_column(table, self.column, source)
        empty = table[self.column].isna().to_numpy()
        if empty.any():
            line = int(empty.argmax()) + 2
            raise ValueError(f"{source}: column {self.column!r} is empty in line {line}: fill it")
        paths = [files.path(str(name)) for name in table[self.column]]
        full = table.assign(**{self.column: paths})
        return full[self._usable(paths, quiet)].reset_index(drop=True) if self.skip else full

    def _usable(self, paths: Sequence[str], quiet: bool) -> NDArray[Any]:
        from tailwise.images import decode_pictures

        found = decode_pictures(paths, size=self.size, on_broken="skip", progress=False if quiet else None)
        if found.problems:
            more = f" and {len(found.problems) - _SHOWN} more" if len(found.problems) > _SHOWN else ""
            named = "; ".join(found.problems[:_SHOWN])
            note(f"note: left out {len(found.problems)} pictures: {named}{more}", quiet)
        return found.usable

    def divided(self, rows: Labelled) -> tuple[Labelled, Labelled | None, Labelled | None]:
        """Return the rows to train, to stop by and to measure on, by the column of parts."""
        import numpy as np

        assert self.parts is not None
        train, held, measured = (
            rows.take(np.flatnonzero((self.parts == part).to_numpy())) for part in ("train", "val", "test")
        )
        if len(train.labels) == 0:
            raise ValueError(f"no row has 'train' in the column {self.split!r}")
        some = [part if len(part.labels) else None for part in (held, measured)]
        return train, some[0], some[1]


def reader_for(fitted: TailRegressor, pictures: PictureOptions) -> PictureReader | None:
    """Return what reads the pictures of a fitted model; None for a model of tables."""
    from tailwise.model.inputs import PictureInputs

    if not isinstance(known := fitted.model_.inputs, PictureInputs):
        if pictures.images is not None:
            raise ValueError("this model was trained on a table, not on pictures: leave out --images")
        return None
    if pictures.images is None:
        raise ValueError("this model takes pictures: name their folder or zip archive with --images")
    names = [str(name) for name in getattr(fitted, "feature_names_in_", [])]
    column = names[0] if names else pictures.paths
    return PictureReader(pictures.images, column, pictures.skip_broken, known.size)


def load_rows(source: str, reader: PictureReader | None, shared: Shared) -> pd.DataFrame:
    """Read a table; with a reader of pictures, its column of paths has their folder in front."""
    table = load_table(source, shared.quiet, shared.encoding)
    return table if reader is None else reader.with_paths(table, source, shared.quiet)
