"""The exporters ``csv`` and ``parquet``. Memory does not grow with the rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final

from collector.artifacts import RunArtifacts
from exporters.base import RunExportConfig
from exporters.packages import missing_package, require_package
from exporters.single_file import FileExportConfig, FileExporter, Sink
from exporters.source import selected_lines
from exporters.tables.columns import Kind, kinds_of, readable, values_of

#: Bytes of rows that become one part of the file.
_PART: Final = 8 << 20
#: What a field is quoted for. Python's own writer, before 3.13, lets a lone CR pass, and readers end the row there.
_QUOTED: Final = re.compile(r'[,"\r\n]')


class CsvExporter(FileExporter[FileExportConfig]):
    """UTF-8, commas, a header; an absent value is an empty field, truth is ``true`` and ``false``."""

    Config: ClassVar[type[RunExportConfig]] = FileExportConfig
    tag = "_table.csv"

    def write(self, artifacts: RunArtifacts, sink: Sink) -> int:
        """Write the table."""
        kinds = kinds_of(selected_lines(artifacts), artifacts.rollouts)
        sink.write(_csv_line(readable(name) for name in kinds))
        count = 0
        for part in _parts(selected_lines(artifacts)):
            sink.write(b"".join(_csv_line(values_of(line, kinds)) for line in part))
            count += len(part)
        return count


class ParquetExporter(FileExporter[FileExportConfig]):
    """Typed columns, zstd; objects and arrays are JSON text."""

    Config: ClassVar[type[RunExportConfig]] = FileExportConfig
    tag = "_table.parquet"

    def missing(self) -> str | None:
        """pyarrow, when it is not installed."""
        return missing_package("pyarrow", "tables")

    def write(self, artifacts: RunArtifacts, sink: Sink) -> int:
        """Write the table, one row group a part."""
        require_package("pyarrow", "tables")
        import pyarrow as pa  # noqa: PLC0415 - heavy, and only here
        from pyarrow import parquet  # noqa: PLC0415

        kinds = kinds_of(selected_lines(artifacts), artifacts.rollouts)
        types: dict[Kind, Any] = {
            Kind.BOOL: pa.bool_(), Kind.INT: pa.int64(), Kind.LONG: pa.int64(), Kind.FLOAT: pa.float64(),
            Kind.TEXT: pa.string(), Kind.JSON: pa.string(),
        }  # fmt: skip
        schema = pa.schema([(readable(name), types[kind]) for name, kind in kinds.items()])
        count = 0
        with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
            for part in _parts(selected_lines(artifacts)):
                columns = list(zip(*(values_of(line, kinds) for line in part), strict=True))
                arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
                count += len(part)
        return count


def _parts(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line)
        if size >= _PART:
            yield part
            part, size = [], 0
    if part:
        yield part


def _csv_line(values: Iterable[Any]) -> bytes:
    fields = [_csv_field(value) for value in values]
    # A blank line is no row to a reader.
    return (",".join(fields) if fields != [""] else '""').encode() + b"\n"


def _csv_field(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = "" if value is None else str(value)
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if _QUOTED.search(text) else text
