//! Adds up a column of a table by the values of another one.

use anyhow::{Context, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Deserialize)]
struct Row {
    city: String,
    amount: f64,
}

fn main() -> anyhow::Result<()> {
    let (mut file, mut least) = (None::<PathBuf>, f64::MIN);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            lexopt::Arg::Long("least") => least = parser.value()?.to_string_lossy().parse()?,
            lexopt::Arg::Value(value) => file = Some(value.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    let Some(file) = file else { bail!("name a table") };
    let mut table =
        csv::Reader::from_path(&file).with_context(|| format!("cannot open {}", file.display()))?;
    let mut sums = BTreeMap::<String, f64>::new();
    for row in table.deserialize() {
        let row: Row = row.context("a row is wrong")?;
        if row.amount >= least {
            *sums.entry(row.city).or_default() += row.amount;
        }
    }
    for (city, sum) in sums {
        println!("{city}: {sum:.2}");
    }
    Ok(())
}
