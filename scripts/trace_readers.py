"""Compares the exports of one trace: its tables with each other, and the Perfetto trace with them."""

import sys
from collections import Counter, defaultdict

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto


def tables(path):
    """The rows of the three tables, which must be the same."""
    arrow = pa.ipc.open_file(f"{path}.arrow").read_all()
    parquet = pa.parquet.read_table(f"{path}.parquet")
    types = {field.name: field.type for field in arrow.schema}
    # The text "" is null: no column of text has both.
    options = pa.csv.ConvertOptions(column_types=types, strings_can_be_null=True, null_values=[""])
    csv = pa.csv.read_csv(f"{path}.csv", convert_options=options)
    assert arrow.schema.metadata[b"began_unix_ns"] == parquet.schema.metadata[b"began_unix_ns"]
    assert arrow.schema.remove_metadata() == parquet.schema.remove_metadata()
    rows = arrow.to_pylist()
    assert rows == parquet.to_pylist()
    # A service of no name is null in CSV.
    blank = [{name: None if value == "" else value for name, value in row.items()} for row in rows]
    assert blank == csv.to_pylist()
    compressions = {
        parquet_file.row_group(group).column(column).compression
        for parquet_file in [pa.parquet.ParquetFile(f"{path}.parquet").metadata]
        for group in range(parquet_file.num_row_groups)
        for column in range(parquet_file.num_columns)
    }
    assert compressions == {"LZ4"}, compressions
    return rows


def slices(path):
    """The slices of the Perfetto trace by kind of track, with their names, flows and annotations."""
    trace = perfetto.Trace()
    with open(f"{path}.pftrace", "rb") as file:
        trace.ParseFromString(file.read())
    names, notes, tracks, open_slices = {}, {}, {}, defaultdict(list)
    found, events, parents = [], [], {}
    for number, packet in enumerate(trace.packet):
        assert packet.trusted_packet_sequence_id == 1
        assert packet.sequence_flags == (3 if number == 0 else 2)
        names.update({name.iid: name.name for name in packet.interned_data.event_names})
        notes.update({name.iid: name.name for name in packet.interned_data.debug_annotation_names})
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in tracks and (track.HasField("process") or track.parent_uuid in tracks)
            tracks[track.uuid] = track
        if packet.HasField("track_event"):
            event = packet.track_event
            assert event.track_uuid in tracks, "a track is described before it is used"
            assert not event.HasField("name_iid") or event.name_iid in names
            events.append((packet.timestamp, number, event))
    # A reader sorts by time, and what has the same time by its place in the file.
    for timestamp, _, event in sorted(events, key=lambda event: event[:2]):
        stack = open_slices[event.track_uuid]
        if event.type == event.TYPE_SLICE_BEGIN:
            assert not stack, "slices of a track do not overlap"
            stack.append((timestamp, event))
        elif event.type == event.TYPE_SLICE_END:
            began, begin = stack.pop()
            found.append((tracks[event.track_uuid], begin, began, timestamp))
        else:
            assert tracks[event.track_uuid].HasField("counter")
    for track, stack in open_slices.items():
        found.extend((tracks[track], begin, began, None) for began, begin in stack)

    def described(track, begin, began, ended):
        values = {
            notes[note.name_iid]: note.string_value if note.HasField("string_value") else note.uint_value
            for note in begin.debug_annotations
        }
        name = begin.name or names[begin.name_iid]
        return track.name, name, began, ended, list(begin.flow_ids), list(begin.terminating_flow_ids), values

    return [described(*one) for one in found], tracks


def main(path):
    rows = tables(path)
    found, tracks = slices(path)
    processes = {track.process.process_name for track in tracks.values() if track.HasField("process")}
    assert processes == {f"{row['device']} ({row['protocol']})" for row in rows}, processes

    def name(row):
        return f"{row['service']}::{row['method']}" if row["service"] else row["method"]

    calls = [row for row in rows if row["event"] == "call"]
    expected = Counter(
        (f"slot {row['slot']}", name(row), row["begin_ns"], row["end_ns"], row["kernel"], row["lanes"], row["wave"])
        for row in calls
    )
    on_slots = [one for one in found if one[0].startswith("slot ")]
    got = Counter((*one[:4], one[6].get("kernel"), one[6]["lanes"], one[6].get("wave")) for one in on_slots)
    assert got == expected

    handled = [row for row in calls if row["handler_begin_ns"] != row["end_ns"]]
    expected = Counter(
        (f"handlers of {name(row)}", name(row), row["handler_begin_ns"], row["handler_end_ns"]) for row in handled
    )
    handlers = [one for one in found if one[0].startswith("handlers of ")]
    assert Counter(one[:4] for one in handlers) == expected
    # Each flow goes from a call to its handler.
    begins = {flow: one for one in on_slots for flow in one[4]}
    assert len(begins) == len(handlers)
    for handler in handlers:
        [flow] = handler[5]
        call = begins[flow]
        assert call[1] == handler[1] and call[2] <= handler[2] and handler[3] <= call[3]

    launches = [row for row in rows if row["event"] == "launch"]
    expected = Counter((row["kernel"], row["begin_ns"], row["end_ns"], row["launch"]) for row in launches)
    got = Counter((one[1], one[2], one[3], one[6]["launch"]) for one in found if one[0] == "launches")
    assert got == expected
    print(f"{path}: {len(rows)} rows, {len(found)} slices on {len(tracks)} tracks")


def records(path):
    """The tables of a stream's records, as the example `heat_map` writes them, must be the same and have its columns."""
    arrow = pa.ipc.open_file(f"{path}.arrow").read_all()
    parquet = pa.parquet.read_table(f"{path}.parquet")
    types = {field.name: field.type for field in arrow.schema}
    csv = pa.csv.read_csv(f"{path}.csv", convert_options=pa.csv.ConvertOptions(column_types=types))
    rows = arrow.to_pylist()
    assert rows and rows == parquet.to_pylist() == csv.to_pylist()
    of_record = [field for field in arrow.schema if not field.name.startswith("page.")]
    described = [(field.name, field.type, (field.metadata or {}).get(b"unit")) for field in of_record]
    assert described == [
        ("address", pa.uint64(), None),
        ("lane", pa.uint32(), None),
        ("distance", pa.int32(), b"values"),
    ], described
    for schema in [arrow.schema, parquet.schema]:
        assert schema.metadata[b"stream"] == b"reads" and schema.metadata[b"type"] == b"Read"
        assert schema.metadata[b"format"] == b"lane {lane} read {address:#x}, at distance {distance}"
    # 8 workgroups of 32 lanes, of which each wave writes a page after the other.
    assert {row["page.workgroup"] for row in rows} == set(range(8))
    assert {row["lane"] for row in rows} == set(range(256))
    assert all(row["lane"] // 32 == row["page.workgroup"] for row in rows)
    # A search begins in the middle of 4096 values of 8 bytes.
    assert max(row["address"] for row in rows) - min(row["address"] for row in rows) < 8 * 4096
    assert min(row["distance"] for row in rows) < 0 < max(row["distance"] for row in rows)
    print(f"{path}: {len(rows)} records")


if sys.argv[1] == "--records":
    records(sys.argv[2])
else:
    main(sys.argv[1])
