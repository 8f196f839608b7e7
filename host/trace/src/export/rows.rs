//! Events as rows of one table.

use super::open_spans::OpenSpans;
use super::{Export, LeftOut};
use crate::names::{Launch, Names};
use crate::record::{Call, Ending, Event, Point, Posts, UNKNOWN};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::trace::PointKind;
use std::io;

/// The type of a column; all columns but `event`, `begin_ns` and `count` may be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Text in UTF-8.
    Text,
    /// An unsigned number of 64 bits.
    Number,
    /// An unsigned number of 64 bits: nanoseconds since the trace began.
    Time,
}

/// The columns of the table: of a launch the begin is when the host gave it to the device, the end when the host learned of
/// its end. Of a call the begin is when the server picked it up, the end when all lanes had their answers.
/// Trace points of kernels are events `span`, `counter` and `event`, whose `method` is the point's name or format; a span whose
/// end the trace does not have, since its lanes hung or panicked or the end was lost, has no `end_ns`.
///
/// `launch` is a number that the trace gives; `launch_id` is the launch's id as other reports and the tables of records
/// (`page.launch`) have it, such as `17.3`, which no two launches of a device have at a time.
pub const COLUMNS: [(&str, Type); 22] = [
    ("event", Type::Text),
    ("device", Type::Text),
    ("protocol", Type::Text),
    ("service", Type::Text),
    ("method", Type::Text),
    ("launch", Type::Number),
    ("kernel", Type::Text),
    ("workgroup", Type::Number),
    ("wave", Type::Number),
    ("slot", Type::Number),
    ("lanes", Type::Number),
    ("failed_lanes", Type::Number),
    ("status", Type::Text),
    ("begin_ns", Type::Time),
    ("handler_begin_ns", Type::Time),
    ("handler_end_ns", Type::Time),
    ("end_ns", Type::Time),
    ("request_bytes", Type::Number),
    ("reply_bytes", Type::Number),
    ("count", Type::Number),
    ("value", Type::Text),
    ("launch_id", Type::Text),
];

/// A place of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Value<'a> {
    #[default]
    Null,
    Text(&'a str),
    Number(u64),
}

impl<'a, T: Into<&'a str>> From<Option<T>> for Value<'a> {
    fn from(text: Option<T>) -> Self {
        text.map_or(Self::Null, |text| Self::Text(text.into()))
    }
}

/// The values of a row, in the order of [`COLUMNS`].
pub(super) type Row<'a> = [Value<'a>; COLUMNS.len()];

/// What takes rows.
pub(super) trait Table {
    fn row(&mut self, row: &Row<'_>) -> io::Result<()>;
    fn finish(&mut self) -> io::Result<()>;
}

/// Makes rows of events.
pub(super) struct Rows<T> {
    table: T,
    text: Vec<u8>,
    id: LaunchIdText,
    spans: OpenSpans,
}

impl<T: Table> Rows<T> {
    pub fn new(table: T) -> Self {
        Self { table, text: Vec::new(), id: LaunchIdText::default(), spans: OpenSpans::default() }
    }

    /// Writes rows of spans without an end.
    fn begins(&mut self, names: &Names, begins: &[Point]) -> io::Result<()> {
        begins.iter().try_for_each(|begin| {
            let id = self.id.of(names.launch(begin.launch));
            self.table.row(&of_point(names, begin, "", id))
        })
    }
}

/// The id of the last row's launch: many rows in turn have the same.
#[derive(Default)]
struct LaunchIdText {
    id: LaunchId,
    text: String,
}

impl LaunchIdText {
    fn of(&mut self, launch: Option<&Launch>) -> Value<'_> {
        let id = launch.map_or(LaunchId::NONE, |launch| launch.id);
        if id == LaunchId::NONE {
            return Value::Null;
        }
        if id != self.id {
            (self.id, self.text) = (id, id.to_string());
        }
        Value::Text(&self.text)
    }
}

impl<T: Table> Export for Rows<T> {
    fn event(&mut self, names: &Names, event: &Event) -> io::Result<()> {
        match event {
            Event::Call(call) => {
                let id = self.id.of(names.launch(call.launch));
                self.table.row(&of_call(names, call, id))
            }
            Event::Posts(posts) => self.table.row(&of_posts(names, posts)),
            Event::Point(point) => {
                let given_up = self.spans.note(point);
                self.begins(names, &given_up)?;
                if point.kind == PointKind::Begin {
                    return Ok(());
                }
                self.text.clear();
                names.print_point(point, &mut self.text);
                let id = self.id.of(names.launch(point.launch));
                self.table.row(&of_point(names, point, &String::from_utf8_lossy(&self.text), id))
            }
            Event::LaunchEnded { launch, at_ns, ending } => match names.launch(*launch) {
                Some(of) => {
                    let row = of_launch(names, *launch, of, Some((*at_ns, *ending)), self.id.of(Some(of)));
                    self.table.row(&row)
                }
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn finish(&mut self, names: &Names) -> io::Result<()> {
        let begins = self.spans.take();
        self.begins(names, &begins)?;
        for (number, launch) in names.open_launches() {
            self.table.row(&of_launch(names, number, launch, None, self.id.of(Some(launch))))?;
        }
        self.table.finish()
    }

    fn left_out(&self) -> LeftOut {
        LeftOut { spans: self.spans.left_out(), points: 0 }
    }
}

fn of_call<'a>(names: &'a Names, call: &Call, launch_id: Value<'a>) -> Row<'a> {
    let (source, method) = (names.source(call.source), names.method(call.method));
    let known = |number: u32| if number == UNKNOWN { Value::Null } else { Value::Number(number.into()) };
    let launch = names.launch(call.launch);
    [
        Value::Text("call"),
        source.map(|(device, _)| device).into(),
        source.map(|(_, protocol)| protocol).into(),
        method.map(|method| method.service()).into(),
        method.map(|method| method.method()).into(),
        if call.launch == 0 { Value::Null } else { Value::Number(call.launch) },
        launch.map(|launch| &*launch.kernel).into(),
        known(call.workgroup),
        known(call.wave),
        Value::Number(call.slot.into()),
        Value::Number(call.lanes.into()),
        Value::Number(call.failed_lanes.into()),
        Value::Text(call.status.name()),
        Value::Number(call.picked_up_ns),
        Value::Number(call.handler_began_ns),
        Value::Number(call.handler_ended_ns),
        Value::Number(call.replied_ns),
        Value::Number(call.request_bytes),
        Value::Number(call.reply_bytes),
        Value::Number(1),
        Value::Null,
        launch_id,
    ]
}

fn of_point<'a>(names: &'a Names, point: &Point, text: &'a str, launch_id: Value<'a>) -> Row<'a> {
    let source = names.source(point.source);
    let mut row = [Value::Null; COLUMNS.len()];
    row[0] = Value::Text(match point.kind {
        PointKind::Begin | PointKind::End => "span",
        PointKind::Counter => "counter",
        PointKind::Event => "event",
    });
    row[1] = source.map(|(device, _)| device).into();
    row[2] = source.map(|(_, protocol)| protocol).into();
    row[4] = names.point(point.source, point.point).map(|name| &*name.text).into();
    if point.launch != 0 {
        row[5] = Value::Number(point.launch);
        row[6] = names.launch(point.launch).map(|launch| &*launch.kernel).into();
    }
    row[7] = Value::Number(point.workgroup.into());
    row[8] = Value::Number(point.wave.into());
    row[9] = Value::Number(point.slot.into());
    row[10] = Value::Number(point.lanes.into());
    row[13] = Value::Number(point.began_ns);
    if point.kind != PointKind::Begin {
        row[16] = Value::Number(point.at_ns);
    }
    row[19] = Value::Number(1);
    if matches!(point.kind, PointKind::Counter | PointKind::Event) {
        row[20] = Value::Text(text);
    }
    row[21] = launch_id;
    row
}

fn of_posts<'a>(names: &'a Names, posts: &Posts) -> Row<'a> {
    let (source, method) = (names.source(posts.source), names.method(posts.method));
    let mut row = [Value::Null; COLUMNS.len()];
    row[0] = Value::Text("posts");
    row[1] = source.map(|(device, _)| device).into();
    row[2] = source.map(|(_, protocol)| protocol).into();
    row[3] = method.map(|method| method.service()).into();
    row[4] = method.map(|method| method.method()).into();
    row[13] = Value::Number(posts.from_ns);
    row[16] = Value::Number(posts.until_ns);
    row[19] = Value::Number(posts.count);
    row
}

fn of_launch<'a>(
    names: &'a Names,
    number: u64,
    launch: &'a Launch,
    end: Option<(u64, Ending)>,
    launch_id: Value<'a>,
) -> Row<'a> {
    let source = names.source(launch.source);
    let mut row = [Value::Null; COLUMNS.len()];
    row[0] = Value::Text("launch");
    row[1] = source.map(|(device, _)| device).into();
    row[2] = source.map(|(_, protocol)| protocol).into();
    row[5] = Value::Number(number);
    row[6] = Value::Text(&launch.kernel);
    row[12] = end.map(|(_, ending)| ending.name()).into();
    row[13] = Value::Number(launch.began_ns);
    row[16] = end.map_or(Value::Null, |(at_ns, _)| Value::Number(at_ns));
    row[19] = Value::Number(1);
    row[21] = launch_id;
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events and values of the rows.
    #[derive(Default)]
    struct Said(Vec<[String; 2]>);

    impl Table for Said {
        fn row(&mut self, row: &Row<'_>) -> io::Result<()> {
            let text = |value| if let Value::Text(text) = value { text } else { "" };
            self.0.push([row[0], row[20]].map(|value| text(value).to_owned()));
            Ok(())
        }

        fn finish(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The block with a name may be lost; what was measured is not.
    #[test]
    fn points_without_names_have_their_words() {
        let mut rows = Rows::new(Said::default());
        for kind in [PointKind::Counter, PointKind::Event, PointKind::End] {
            let point = Point { kind, point: 7, values: [5, 6, 0, 0, 0], count: 2, ..Point::default() };
            rows.event(&Names::default(), &Event::Point(point)).unwrap();
        }
        let said: Vec<_> = rows.table.0.iter().map(|row| row.each_ref().map(|text| &**text)).collect();
        assert_eq!(said, [["counter", "[5, 6]"], ["event", "[5, 6]"], ["span", ""]]);
    }
}
