//! Trace points: what waves say to the file of a device that is traced.

use crate::{Context, Outcome, echo, ensure, same};
use conformance::points::points;
use hostcall::Grid;
use hostcall::trace::{Event, Names, Point, PointKind, Reader, Tracer};
use std::collections::HashMap;
use std::time::Duration;

const STEPS: u32 = 5;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// All that lanes say is in the file, in the order of each wave, on the host's time line.
pub fn said(context: &Context) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let path = folder.path().join("points.trace");
    let tracer = Tracer::builder().file(&path).map_err(text)?.start().map_err(text)?;
    let session = context.open(|device| device.inline_service(echo()).trace(&tracer))?;
    // A wave that lacks lanes, too.
    let (workgroups, lanes) = (3, session.device.wave_size() + 5);
    // What a launch before has registered is not asked for again.
    for _ in 0..2 {
        session.run(points, Grid::new(workgroups, lanes), (STEPS,))?;
    }
    let summary = tracer.finish(Duration::from_secs(60));
    same!(summary.lost(), None);
    let mut names = Names::default();
    let (mut said, mut within_ns, mut launches) = (Vec::new(), Vec::new(), HashMap::new());
    for event in Reader::new(std::fs::File::open(&path).map_err(text)?).map_err(text)? {
        let event = event.map_err(text)?;
        names.note(&event);
        match event {
            Event::Point(point) => said.push(point),
            Event::Clock(pair) => within_ns.push(pair.within_ns()),
            Event::LaunchEnded { launch, at_ns, .. } => _ = launches.insert(launch, at_ns),
            Event::Damaged(_) | Event::Missing(_) | Event::PointsLost { .. } => {
                return Err(format!("{event:?}"));
            }
            _ => {}
        }
    }
    let within_ns = within_ns.into_iter().max().ok_or("the clocks were not compared")?;
    println!("trace points are within {within_ns} ns of the host's clock");
    let of = |kind: PointKind, name: &str| -> Vec<&Point> {
        let is_it = |point: &&Point| {
            let text = names.point(point.source, point.point).map_or("", |name| &*name.text);
            point.kind == kind && text.starts_with(name)
        };
        said.iter().filter(is_it).collect()
    };
    let all_lanes = 2 * workgroups * lanes;
    let sum = |some: &[&Point]| some.iter().map(|point| u32::from(point.lanes)).sum::<u32>();
    same!(sum(&of(PointKind::Begin, "whole")), all_lanes);
    same!(sum(&of(PointKind::Begin, "step")), all_lanes * STEPS);
    same!(sum(&of(PointKind::Counter, "step")), all_lanes * STEPS);
    let wave_size = session.device.wave_size();
    let thirds = wave_size.div_ceil(3) + 5u32.div_ceil(3);
    same!(sum(&of(PointKind::Event, "workgroup ")), 2 * workgroups * thirds * STEPS);
    for name in ["whole", "step"] {
        // Each span that begins ends, once.
        let id =
            |point: &Point| (point.launch, point.workgroup, point.wave, point.first_lane, point.began_ns);
        let mut begun: Vec<_> = of(PointKind::Begin, name).into_iter().map(id).collect();
        let mut ended: Vec<_> = of(PointKind::End, name).into_iter().map(id).collect();
        begun.sort_unstable();
        ended.sort_unstable();
        same!(begun, ended);
    }
    for point in of(PointKind::Event, "workgroup ") {
        let mut line = Vec::new();
        names.point(point.source, point.point).ok_or("it has a name")?.print(point, &mut line);
        let expected = format!("workgroup {} was answered {:#x}, -1", point.workgroup, point.values[2]);
        same!(String::from_utf8(line).map_err(text)?, expected);
        ensure!(point.values[2] < u64::from(STEPS));
    }
    let mut last = HashMap::new();
    for point in &said {
        let last_ns = last.entry((point.launch, point.workgroup, point.wave, point.first_lane)).or_insert(0);
        ensure!(*last_ns <= point.at_ns);
        *last_ns = point.at_ns;
        let began_ns = names.launch(point.launch).ok_or("the launch is known")?.began_ns;
        let ended_ns = launches[&point.launch];
        // Between two comparisons the clocks may come apart a little.
        let within_ns = within_ns + 1_000_000;
        ensure!(point.at_ns + within_ns >= began_ns);
        ensure!(point.at_ns <= ended_ns + within_ns);
    }
    Ok(())
}
