//! Events as rows of one table.

use super::Export;
use crate::names::{Launch, Names};
use crate::record::{Call, Event, Posts, UNKNOWN};
use std::io;

/// The type of a column; all columns but `event`, `begin_ns` and `count` may be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Text in UTF-8.
    Text,
    /// An unsigned number of 64 bits.
    Number,
    /// The same, of nanoseconds since the trace began.
    Time,
}

/// The columns of the table: of a launch the begin is when the host gave it to the device, the end when the host learned of
/// its end. Of a call the begin is when the server picked it up, the end when all lanes had their answers.
pub const COLUMNS: [(&str, Type); 20] = [
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
pub(super) struct Rows<T>(T);

impl<T: Table> Rows<T> {
    pub fn new(table: T) -> Self {
        Self(table)
    }
}

impl<T: Table> Export for Rows<T> {
    fn event(&mut self, names: &Names, event: &Event) -> io::Result<()> {
        match event {
            Event::Call(call) => self.0.row(&of_call(names, call)),
            Event::Posts(posts) => self.0.row(&of_posts(names, posts)),
            Event::LaunchEnded { launch, at_ns, cancelled } => match names.launch(*launch) {
                Some(of) => self.0.row(&of_launch(names, *launch, of, Some((*at_ns, *cancelled)))),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn finish(&mut self, names: &Names) -> io::Result<()> {
        for (number, launch) in names.open_launches() {
            self.0.row(&of_launch(names, number, launch, None))?;
        }
        self.0.finish()
    }
}

fn of_call<'a>(names: &'a Names, call: &Call) -> Row<'a> {
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
    ]
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

fn of_launch<'a>(names: &'a Names, number: u64, launch: &'a Launch, end: Option<(u64, bool)>) -> Row<'a> {
    let source = names.source(launch.source);
    let mut row = [Value::Null; COLUMNS.len()];
    row[0] = Value::Text("launch");
    row[1] = source.map(|(device, _)| device).into();
    row[2] = source.map(|(_, protocol)| protocol).into();
    row[5] = Value::Number(number);
    row[6] = Value::Text(&launch.kernel);
    row[12] = end.map(|(_, cancelled)| if cancelled { "cancelled" } else { "ok" }).into();
    row[13] = Value::Number(launch.began_ns);
    row[16] = end.map_or(Value::Null, |(at_ns, _)| Value::Number(at_ns));
    row[19] = Value::Number(1);
    row
}
