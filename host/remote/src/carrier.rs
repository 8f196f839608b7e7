//! The seam to what carries messages. All that knows zenoh is in `zenoh_carrier.rs`, which implements this.

use crate::RemoteError;
use std::time::Duration;

/// How a question ended.
#[derive(Debug)]
pub enum End {
    /// This came back.
    Answered(Vec<u8>),
    /// Nothing came back, and nothing will: whoever had the question is gone, was denied, or dropped it.
    Nothing,
    /// Nothing came back in time.
    Late,
}

/// Gets told how a question ended.
pub type Told = Box<dyn FnOnce(End) + Send + Sync>;

/// A question that arrived. Dropping it ends it at the other side, with nothing.
pub trait Arrived: Send {
    /// Returns the name behind the service's: the method's.
    fn method(&self) -> &str;
    /// Returns the message.
    fn message(&self) -> Vec<u8>;
    /// Sends the answer.
    fn answer(&self, message: Vec<u8>);
}

/// Asks one method of a service. Its functions are called on a thread of this crate, and may wait for the link.
pub trait Asks: Send {
    /// Returns whether somebody answers now, as far as this end knows. If it says no, nothing that is asked leaves this
    /// process.
    fn is_answered(&self) -> bool;
    /// Sends a question, and calls `end` once: on any thread, which it must not hold up.
    fn ask(&self, message: Vec<u8>, timeout: Duration, end: Told);
}

/// Carries questions to whoever answers, and answers back.
pub trait Carrier: Send + Sync {
    /// Prepares to ask a method of a service.
    ///
    /// # Errors
    /// When the names are none for this carrier, or it is closed.
    fn asks(&self, service: &str, method: &str) -> Result<Box<dyn Asks>, RemoteError>;
    /// Answers for a service until what this returns is dropped. `arrived` is called on threads of the carrier's, and only
    /// passes on what it gets.
    ///
    /// # Errors
    /// As for [`Carrier::asks`].
    fn answers(
        &self,
        service: &str,
        arrived: Box<dyn Fn(Box<dyn Arrived>) + Send + Sync>,
    ) -> Result<Box<dyn Send>, RemoteError>;
    /// Lets others see a name until what this returns is dropped, or this process ends.
    ///
    /// # Errors
    /// As for [`Carrier::asks`].
    fn announce(&self, name: &str) -> Result<Box<dyn Send>, RemoteError>;
    /// Calls `seen` with each name that is announced, and again with `false` once it is not any more, until what this returns is
    /// dropped. It is called on threads of the carrier's, which it must not hold up.
    ///
    /// # Errors
    /// As for [`Carrier::asks`].
    fn watch(&self, seen: Box<dyn Fn(&str, bool) + Send + Sync>) -> Result<Box<dyn Send>, RemoteError>;
    /// Tells all that hear. Nobody waits for those that do not take it: it is dropped for them.
    fn tell(&self, name: &str, message: Vec<u8>);
    /// Hears what others tell, until what this returns is dropped. `heard` is called as [`Carrier::watch`]'s function is.
    ///
    /// # Errors
    /// As for [`Carrier::asks`].
    fn hear(&self, heard: Box<dyn Fn(Vec<u8>) + Send + Sync>) -> Result<Box<dyn Send>, RemoteError>;
    /// Answers what members are asked under a name, until what this returns is dropped.
    ///
    /// # Errors
    /// As for [`Carrier::asks`].
    fn answers_as(
        &self,
        name: &str,
        arrived: Box<dyn Fn(Box<dyn Arrived>) + Send + Sync>,
    ) -> Result<Box<dyn Send>, RemoteError>;
    /// Asks the member with a name, or all without one, and waits until all have answered, or for this long. `answered` is called
    /// with each answer; a member may give several.
    fn ask_members(
        &self,
        name: Option<&str>,
        what: &str,
        message: Vec<u8>,
        timeout: Duration,
        answered: Box<dyn Fn(Vec<u8>) + Send + Sync>,
    );
}
