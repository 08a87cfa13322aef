//! The program `numaherd`; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    numaherd::main()
}
