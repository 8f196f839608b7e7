//! What events refer to by numbers: sources, methods, launches.

use crate::record::{Event, Point};
use foldhash::HashMap;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::trace::PointKind;
use hostcall_format::{Format, tags};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most methods that are known; the others have no names.
const MOST_METHODS: usize = 1 << 16;

/// Most trace points that are known; the others have no names.
const MOST_POINTS: usize = 1 << 14;

/// Most launches that are known: those that have not ended, and then those that ended last.
const MOST_LAUNCHES: usize = 1 << 18;

/// A method's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodName {
    /// The number by which kernels call it.
    pub number: u32,
    /// The whole name.
    pub name: Arc<str>,
    /// Where in the name the service ends, and where the method begins: tables have both in each row.
    parts: (usize, usize),
}

impl MethodName {
    fn new(number: u32, name: &Arc<str>) -> Self {
        let parts = name.rfind("::").map_or((0, 0), |at| (at, at + 2));
        Self { number, name: name.clone(), parts }
    }

    /// Returns the service: what is before the last `::` of the name.
    pub fn service(&self) -> &str {
        &self.name[..self.parts.0]
    }

    /// Returns the method: what is after the last `::` of the name.
    pub fn method(&self) -> &str {
        &self.name[self.parts.1..]
    }
}

/// What is known of a trace point.
#[derive(Clone, Debug)]
pub struct PointName {
    /// What it says. Spans are [`PointKind::Begin`].
    pub kind: PointKind,
    /// Its name; of an event, the format.
    pub text: Arc<str>,
    /// The source file.
    pub file: Arc<str>,
    /// The line in it.
    pub line: u32,
    tags: u64,
    format: Option<Arc<Format>>,
}

impl PointName {
    fn new(kind: PointKind, tags: u64, line: u32, file: &Arc<str>, text: &Arc<str>) -> Self {
        let format = match kind {
            PointKind::Event => Format::parse(text),
            _ => Format::parse("{}"),
        };
        let (text, file) = (text.clone(), file.clone());
        Self { kind, text, file, line, tags, format: format.ok().map(Arc::new) }
    }

    /// Appends what a record says: a counter's value, or an event's text. Of a span it is nothing.
    pub fn print(&self, point: &Point, to: &mut Vec<u8>) {
        if self.kind == PointKind::Begin {
            return;
        }
        let words = point.words();
        let is_printed =
            self.format.as_ref().is_some_and(|format| format.render_words(self.tags, words, to).is_ok());
        if !is_printed {
            to.extend(format!("{}{words:?}", self.text).as_bytes());
        }
    }

    /// Returns a counter's value as a number.
    pub fn value(&self, point: &Point) -> f64 {
        let word = point.values[0];
        match tags::get(self.tags, 0) {
            tags::I8 | tags::I16 | tags::I32 | tags::I64 => word as i64 as f64,
            tags::F32 => f32::from_bits(word as u32).into(),
            tags::F64 => f64::from_bits(word),
            _ => word as f64,
        }
    }
}

/// What is known of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The source.
    pub source: u16,
    /// When it was given to the device, in nanoseconds since the trace began.
    pub began_ns: u64,
    /// Workgroups in x, y and z.
    pub workgroups: [u32; 3],
    /// The kernel's name.
    pub kernel: Arc<str>,
    /// Its id on the device; [`LaunchId::NONE`] when the trace does not say it.
    pub id: LaunchId,
    /// Whether the trace said that it ended.
    pub has_ended: bool,
}

/// The names that a trace has given so far. It keeps a bounded number of them, however many a file gives: of launches those
/// that have not ended and those that ended last, of methods the first ones.
#[derive(Clone, Debug, Default)]
pub struct Names {
    sources: BTreeMap<u16, (Arc<str>, Arc<str>)>,
    methods: HashMap<u32, MethodName>,
    points: HashMap<(u16, u32), PointName>,
    /// By number, each with its key in `open` or, once it has ended, in `ended`.
    launches: HashMap<u64, (u64, Launch)>,
    /// The numbers of launches in the order of their begins, and in that of their ends.
    open: BTreeMap<u64, u64>,
    ended: BTreeMap<u64, u64>,
    /// The key of the next begin or end.
    next_key: u64,
    launches_begun: u64,
}

impl Names {
    /// Takes what an event says of names.
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::Source { source, device, protocol } => {
                self.sources.insert(*source, (device.clone(), protocol.clone()));
            }
            Event::Method { method, number, name } if self.methods.len() < MOST_METHODS => {
                self.methods.insert(*method, MethodName::new(*number, name));
            }
            Event::NamedPoint { source, point, kind, tags, line, file, text }
                if self.points.len() < MOST_POINTS =>
            {
                self.points.insert((*source, *point), PointName::new(*kind, *tags, *line, file, text));
            }
            Event::LaunchBegan { launch, source, at_ns, workgroups, kernel, id } => {
                self.launches_begun += 1;
                let began = Launch {
                    source: *source,
                    began_ns: *at_ns,
                    workgroups: *workgroups,
                    kernel: kernel.clone(),
                    id: *id,
                    has_ended: false,
                };
                self.begin_launch(*launch, began);
            }
            Event::LaunchEnded { launch: number, .. } => {
                if let Some((key, launch)) = self.launches.get_mut(number)
                    && !launch.has_ended
                {
                    launch.has_ended = true;
                    self.open.remove(key);
                    *key = self.next_key;
                    self.next_key += 1;
                    self.ended.insert(*key, *number);
                }
            }
            _ => {}
        }
    }

    fn begin_launch(&mut self, number: u64, launch: Launch) {
        // A file may give a number again.
        if let Some((key, before)) = self.launches.remove(&number) {
            let keys = if before.has_ended { &mut self.ended } else { &mut self.open };
            keys.remove(&key);
        }
        if self.launches.len() >= MOST_LAUNCHES {
            // Ends may be lost, so that launches seem to run for ever: they leave half of the room to others.
            let oldest = match self.open.len() > MOST_LAUNCHES / 2 {
                true => self.open.pop_first(),
                false => self.ended.pop_first(),
            };
            if let Some((_, oldest)) = oldest {
                self.launches.remove(&oldest);
            }
        }
        self.open.insert(self.next_key, number);
        self.launches.insert(number, (self.next_key, launch));
        self.next_key += 1;
    }

    /// Returns the sources' numbers, devices and protocols.
    pub fn sources(&self) -> impl Iterator<Item = (u16, &str, &str)> {
        self.sources.iter().map(|(source, (device, protocol))| (*source, &**device, &**protocol))
    }

    /// Returns a source's device and protocol, if the trace has said them.
    pub fn source(&self, source: u16) -> Option<(&str, &str)> {
        self.sources.get(&source).map(|(device, protocol)| (&**device, &**protocol))
    }

    /// Returns a method, if the trace has named it.
    pub fn method(&self, method: u32) -> Option<&MethodName> {
        self.methods.get(&method)
    }

    /// Returns a source's trace point, if the trace has named it.
    pub fn point(&self, source: u16, point: u32) -> Option<&PointName> {
        self.points.get(&(source, point))
    }

    /// Appends what a record of a trace point says, as [`PointName::print`] does; the record's words, if
    /// the trace has not named the point.
    pub fn print_point(&self, point: &Point, to: &mut Vec<u8>) {
        match self.point(point.source, point.point) {
            Some(name) => name.print(point, to),
            None if matches!(point.kind, PointKind::Begin | PointKind::End) => {}
            None => to.extend(format!("{:?}", point.words()).as_bytes()),
        }
    }

    /// Returns a launch, if it is known.
    pub fn launch(&self, launch: u64) -> Option<&Launch> {
        self.launches.get(&launch).map(|(_, launch)| launch)
    }

    /// Returns the launches that are known and have not ended, in the order of their begins.
    pub fn open_launches(&self) -> impl Iterator<Item = (u64, &Launch)> {
        self.open.values().filter_map(|number| Some((*number, self.launch(*number)?)))
    }

    /// Returns how many launches are known and have not ended.
    pub fn launches_open(&self) -> usize {
        self.open.len()
    }

    /// Returns how many launches began.
    pub fn launches_begun(&self) -> u64 {
        self.launches_begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(names: &mut Names, launch: u64) {
        names.note(&Event::LaunchBegan {
            launch,
            source: 0,
            at_ns: launch,
            workgroups: [1; 3],
            kernel: "relax".into(),
            id: LaunchId::NONE,
        });
    }

    fn end(names: &mut Names, launch: u64) {
        names.note(&Event::LaunchEnded { launch, at_ns: launch, ending: Default::default() });
    }

    #[test]
    fn launches_that_ended_first_are_forgotten_first() {
        let mut names = Names::default();
        begin(&mut names, 1);
        let most = MOST_LAUNCHES as u64;
        for launch in 2..=most + 1 {
            begin(&mut names, launch);
            end(&mut names, launch);
        }
        assert!(names.launch(1).is_some() && names.launch(2).is_none() && names.launch(3).is_some());
        assert_eq!(names.open_launches().map(|(number, _)| number).collect::<Vec<_>>(), [1]);
        // One that has just ended stays, however long ago it began.
        end(&mut names, 1);
        begin(&mut names, most + 2);
        assert!(names.launch(1).is_some_and(|launch| launch.has_ended) && names.launch(3).is_none());
        assert_eq!((names.launches_open(), names.launches_begun()), (1, most + 2));
    }

    #[test]
    fn numbers_that_are_given_again_take_no_more_room() {
        let mut names = Names::default();
        for _ in 0..10 {
            begin(&mut names, 1);
            begin(&mut names, 2);
            (0..2).for_each(|_| end(&mut names, 1));
        }
        assert_eq!((names.open.len(), names.ended.len(), names.launches.len()), (1, 1, 2));
        // Where more than half have not ended, those that began first are forgotten, and those that have ended stay.
        let most = MOST_LAUNCHES as u64;
        end(&mut names, 2);
        (3..=most + 3).for_each(|launch| begin(&mut names, launch));
        assert_eq!((names.launches_open(), names.ended.len()), ((1 << 18) - 2, 2));
        assert!(names.launch(1).is_some() && names.launch(5).is_none() && names.launch(6).is_some());
    }
}
