//! The host's side of the program `programs/inventory`, whose kernels ask for rows of a database: the service
//! [`Inventory`] on SQLite. The command stocks a database from the lanes of a device, and moves stock between
//! its items. An example of a whole program with a service of its own.

#![forbid(unsafe_code)]

use hostcall::hostcall_device::CallError;
use hostcall::service::{Output, Service};
use inventory::{Inventory, InventoryHandler, Refused};
use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior, params};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a kernel gets when the database itself fails, as when the disk is full.
pub const DATABASE_FAILED: i32 = 1;

/// What a kernel gets when it adds more of an item than [`MOST_OF_AN_ITEM`], or moves so much that there
/// would be more.
pub const TOO_MUCH: i32 = 2;

/// The largest number that SQLite has.
pub const MOST_OF_AN_ITEM: u64 = i64::MAX as u64;

/// A store of items in a database file.
pub struct Store {
    /// Calls wait here for each other: SQLite has one writer at a time.
    database: Mutex<Connection>,
}

impl Store {
    /// Opens the file, and makes it and its table when they are not there.
    ///
    /// # Errors
    /// When the file is no database or cannot be made.
    pub fn open(file: &Path) -> rusqlite::Result<Self> {
        let database = Connection::open(file)?;
        // A change costs one sync of one file, not two of two.
        database.pragma_update(None, "journal_mode", "WAL")?;
        database.execute_batch(
            "CREATE TABLE IF NOT EXISTS items (
                 key INTEGER PRIMARY KEY,
                 name TEXT NOT NULL,
                 amount INTEGER NOT NULL CHECK (amount >= 0)
             ) STRICT",
        )?;
        Ok(Self { database: Mutex::new(database) })
    }

    /// The service, for a device's server.
    pub fn serve(self) -> impl Service {
        Inventory::serve(self)
    }

    fn database(&self) -> MutexGuard<'_, Connection> {
        // A transaction that a panic left is rolled back when it is dropped.
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(_: rusqlite::Error) -> CallError {
    CallError::Failed(DATABASE_FAILED)
}

/// A number as SQLite keeps it, which has no unsigned ones: the same 64 bits.
fn signed(number: u64) -> i64 {
    number.cast_signed()
}

impl InventoryHandler for Store {
    fn find(&self, key: u64, name: &mut Output<'_>) -> Result<Option<u64>, CallError> {
        let database = self.database();
        let mut find =
            database.prepare_cached("SELECT amount, name FROM items WHERE key = ?1").map_err(failed)?;
        let row = find
            .query_row([signed(key)], |row| Ok((row.get::<_, u64>(0)?, row.get::<_, String>(1)?)))
            .optional()
            .map_err(failed)?;
        let Some((amount, text)) = row else { return Ok(None) };
        name.push(text.as_bytes())?;
        Ok(Some(amount))
    }

    fn add(&self, key: u64, amount: u64, name: &str) -> Result<Result<(), Refused>, CallError> {
        if amount > MOST_OF_AN_ITEM {
            return Err(CallError::Failed(TOO_MUCH));
        }
        let database = self.database();
        let mut add = database
            .prepare_cached("INSERT INTO items (key, name, amount) VALUES (?1, ?2, ?3)")
            .map_err(failed)?;
        match add.execute(params![signed(key), name, amount]) {
            Ok(_) => Ok(Ok(())),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                Ok(Err(Refused::Duplicate))
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn transfer(&self, from: u64, to: u64, amount: u64) -> Result<Result<u64, Refused>, CallError> {
        let mut database = self.database();
        let transaction =
            database.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let amount_of = |key| {
            let row =
                transaction.query_row("SELECT amount FROM items WHERE key = ?1", [signed(key)], |row| {
                    row.get::<_, u64>(0)
                });
            row.optional().map_err(failed)
        };
        let left = match amount_of(from)? {
            None => return Ok(Err(Refused::NoSuchItem)),
            Some(has) if has < amount => return Ok(Err(Refused::TooFew(has))),
            Some(has) => has - amount,
        };
        if from != to && amount_of(to)?.is_some_and(|has| has > MOST_OF_AN_ITEM - amount) {
            return Err(CallError::Failed(TOO_MUCH));
        }
        let change = |sql: &str, key| transaction.execute(sql, params![signed(key), amount]).map_err(failed);
        change("UPDATE items SET amount = amount - ?2 WHERE key = ?1", from)?;
        // Dropped without a commit, the transaction takes the first change back.
        if change("UPDATE items SET amount = amount + ?2 WHERE key = ?1", to)? == 0 {
            return Ok(Err(Refused::NoSuchItem));
        }
        transaction.commit().map_err(failed)?;
        Ok(Ok(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_sqlite_has_numbers_for_is_no_failure_of_the_database() {
        let store = Store::open(Path::new(":memory:")).unwrap();
        let too_much = CallError::Failed(TOO_MUCH);
        for amount in [MOST_OF_AN_ITEM + 1, u64::MAX] {
            assert_eq!(store.add(1, amount, "bolt"), Err(too_much));
        }
        assert_eq!(store.add(1, MOST_OF_AN_ITEM, "bolt"), Ok(Ok(())));
        assert_eq!(store.add(2, 5, "nut"), Ok(Ok(())));
        assert_eq!(store.transfer(2, 1, 1), Err(too_much));
        assert_eq!(store.transfer(1, 1, MOST_OF_AN_ITEM), Ok(Ok(0)));
        assert_eq!(store.transfer(1, 2, u64::MAX), Ok(Err(Refused::TooFew(MOST_OF_AN_ITEM))));
        assert_eq!(store.transfer(1, 2, 1), Ok(Ok(MOST_OF_AN_ITEM - 1)));
    }
}
