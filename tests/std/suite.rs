//! What a program of tests is made of: its table, and a `main` that runs tests by their numbers.

/// A test.
#[derive(Clone, Copy)]
pub struct Test {
    pub module: &'static str,
    pub name: &'static str,
    /// What runs it, or why it is left out.
    pub run: Result<fn() -> Result<(), String>, &'static str>,
}

/// The test with a number, if there is one.
pub struct At<const NUMBER: usize>;

pub trait Case {
    const TEST: Option<Test>;
}

impl<const NUMBER: usize> Case for At<NUMBER> {
    default const TEST: Option<Test> = None;
}

/// What a test returns.
pub trait Outcome {
    fn end(self) -> Result<(), String>;
}

impl Outcome for () {
    fn end(self) -> Result<(), String> {
        Ok(())
    }
}

impl<R, E: std::fmt::Debug> Outcome for Result<R, E> {
    fn end(self) -> Result<(), String> {
        self.map(drop).map_err(|error| format!("{error:?}"))
    }
}

impl Outcome for std::process::ExitCode {
    fn end(self) -> Result<(), String> {
        match self == Self::SUCCESS {
            true => Ok(()),
            false => Err(format!("{self:?}")),
        }
    }
}

impl Outcome for Option<()> {
    fn end(self) -> Result<(), String> {
        self.ok_or_else(|| "None".into())
    }
}

/// What stands before the suite's own lines among those that tests print.
const MARK: &str = "\n[suite]";

/// Lists the tests, or runs those whose numbers are in the file that is named: a number a line.
pub fn main(tests: &[Option<Test>]) {
    let Some(numbers) = std::env::args().nth(1) else {
        for (number, Test { module, name, run }) in
            tests.iter().enumerate().filter_map(|(number, test)| Some((number, (*test)?)))
        {
            println!("{number}\t{module}\t{name}\t{}", run.err().unwrap_or_default());
        }
        return;
    };
    let numbers = std::fs::read_to_string(numbers).expect("the file of numbers");
    for number in numbers.lines() {
        let number: usize = number.parse().expect("a number");
        let Some(Test { run: Ok(run), .. }) = tests[number] else { continue };
        println!("{MARK} begin {number}");
        match run() {
            Ok(()) => println!("{MARK} passed {number}"),
            Err(why) => println!("{MARK} failed {number} {why}"),
        }
    }
    println!("{MARK} end");
}
