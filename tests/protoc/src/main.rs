//! Answers the one call that prost-build makes of protoc: compile files into a descriptor set.

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let mut includes: Vec<PathBuf> = Vec::new();
    let mut files: Vec<PathBuf> = Vec::new();
    let mut output = PathBuf::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-I" => includes.push(arguments.next().ok_or("-I needs a path")?.into()),
            "-o" => output = arguments.next().ok_or("-o needs a path")?.into(),
            "--version" => return Ok(println!("libprotoc 29.0")),
            flag if flag.starts_with('-') => {}
            file => files.push(file.into()),
        }
    }
    let mut compiler = protox::Compiler::new(includes)?;
    compiler.include_imports(true).include_source_info(true).open_files(files)?;
    Ok(std::fs::write(output, compiler.encode_file_descriptor_set())?)
}
