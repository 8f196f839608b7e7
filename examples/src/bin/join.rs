//! Joins orders on the device with customers in a SQLite database, and compares the rows with those of SQLite's own join.

use clap::Parser;
use hostcall::{CallError, Grid, LaunchKernel};
use hostcall_examples::println;
use hostcall_examples_kernels::join::{Customers, CustomersHandler, join};
use rusqlite::{Connection, OptionalExtension, params};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

/// Joins orders with the customers of a database
#[derive(Parser)]
struct Arguments {
    /// Device to run on
    #[arg(default_value = "cpu")]
    device: String,
    /// How many orders
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    orders: u32,
    /// The database's file, made anew; in memory if absent
    #[arg(long)]
    database: Option<PathBuf>,
}

/// Countries that customers live in.
const COUNTRIES: [&str; 6] = ["Chile", "Denmark", "Ghana", "Japan", "Nepal", "Samoa"];

// ANCHOR: handler
/// The host's side of the service. Calls wait here for each other: a connection is one thread's at a time.
struct Database(Mutex<Connection>);

impl CustomersHandler for Database {
    fn country_of(&self, customer: u64) -> Result<Option<u32>, CallError> {
        let database = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let find = database.prepare_cached("SELECT country FROM customers WHERE id = ?1");
        let found = find.and_then(|mut find| find.query_row([customer], |row| row.get(0)).optional());
        // Lanes get a number that says what failed.
        found.map_err(|_| CallError::Failed(1))
    }
}
// ANCHOR_END: handler

fn main() -> ExitCode {
    hostcall_examples::main(run)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let orders: Vec<(u64, u32)> = (0..u64::from(arguments.orders))
        .map(|order| (order * 7919 % 5003, (order * 104_729 % 997) as u32 + 1))
        .collect();
    let database = match &arguments.database {
        Some(file) => Connection::open(file)?,
        None => Connection::open_in_memory()?,
    };
    fill(&database, &orders)?;
    let expected = joined_by_sqlite(&database)?;

    // ANCHOR: run
    let device = hostcall_examples::device(&arguments.device)
        .service(Customers::serve(Database(Mutex::new(database))))
        .open()?;
    let stream = device.stream()?;
    let (customers, amounts): (Vec<u64>, Vec<u32>) = orders.iter().copied().unzip();
    let (customers, amounts) = (device.upload(&customers)?, device.upload(&amounts)?);
    let rows = [device.alloc_zeroed::<u32>(orders.len())?, device.alloc_zeroed::<u32>(orders.len())?];
    let count = device.alloc_zeroed::<u32>(1)?;
    let totals = device.alloc_zeroed::<u64>(COUNTRIES.len())?;
    let grid = Grid::lanes(orders.len());
    join.launch(&stream, grid, (&customers, &amounts, &rows[0], &rows[1], &count, &totals))?;
    stream.synchronize()?;
    // ANCHOR_END: run

    let count = count.read()?[0] as usize;
    let [orders_found, countries] = [rows[0].read()?, rows[1].read()?];
    let mut found: Vec<(u32, u32)> = orders_found.into_iter().zip(countries).take(count).collect();
    found.sort_unstable();
    if found != expected {
        return Err(format!("SQLite joins {} rows, not these {count}", expected.len()).into());
    }
    let totals = totals.read()?;
    for (country, (name, total)) in COUNTRIES.iter().zip(totals).enumerate() {
        let of_country = expected.iter().filter(|(_, of)| *of == country as u32);
        let sum: u64 = of_country.map(|(order, _)| u64::from(orders[*order as usize].1)).sum();
        if total != sum {
            return Err(format!("{name}'s total is {sum}, not {total}").into());
        }
        println!("{total:10} {name}");
    }
    println!("{count} of {} orders have a customer, as SQLite finds", orders.len());
    Ok(())
}

/// Makes the tables: all orders, and a customer for most of them.
fn fill(database: &Connection, orders: &[(u64, u32)]) -> rusqlite::Result<()> {
    database.execute_batch(
        "BEGIN;
         DROP TABLE IF EXISTS customers;
         DROP TABLE IF EXISTS orders;
         CREATE TABLE customers (id INTEGER PRIMARY KEY, country INTEGER NOT NULL) STRICT;
         CREATE TABLE orders (number INTEGER PRIMARY KEY, customer INTEGER NOT NULL) STRICT;",
    )?;
    let mut customer = database.prepare("INSERT INTO customers VALUES (?1, ?2)")?;
    for id in (0..5003u64).filter(|id| id % 11 != 4) {
        customer.execute(params![id, id * id % COUNTRIES.len() as u64])?;
    }
    let mut order = database.prepare("INSERT INTO orders VALUES (?1, ?2)")?;
    for (number, (customer, _)) in orders.iter().enumerate() {
        order.execute(params![number as u64, customer])?;
    }
    database.execute_batch("COMMIT")
}

/// Numbers of orders with their customers' countries, by number.
fn joined_by_sqlite(database: &Connection) -> rusqlite::Result<Vec<(u32, u32)>> {
    let mut rows = database.prepare(
        "SELECT orders.number, customers.country FROM orders JOIN customers ON customers.id = orders.customer
         ORDER BY orders.number",
    )?;
    rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}
