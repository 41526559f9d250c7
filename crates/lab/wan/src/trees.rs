//! Files to measure with: bytes that do not compress, source files that a compiler takes, and what was read of a tree.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use atoll_model::Rng;

/// Bytes that are written at once.
const CHUNK_BYTES: usize = 1 << 20;

/// So many bytes, others for each state of the generator.
pub fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend(rng.bits().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A file of noise.
pub fn noise_file(rng: &mut Rng, path: &Path, len: u64) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    let mut left = len;
    while left > 0 {
        let now = left.min(CHUNK_BYTES as u64);
        file.write_all(&noise(rng, now as usize))?;
        left -= now;
    }
    Ok(())
}

/// So many files of noise with about so many bytes in all, a hundred in each directory. How many bytes there are.
pub fn noise_tree(rng: &mut Rng, top: &Path, files: u64, bytes: u64) -> io::Result<u64> {
    const IN_EACH: u64 = 100;
    let mut total = 0;
    for number in 0..files {
        let dir = top.join(format!("d{:04}", number / IN_EACH));
        if number % IN_EACH == 0 {
            fs::create_dir_all(&dir)?;
        }
        // From half of the mean to half more.
        let mean = bytes / files;
        let len = mean / 2 + rng.below(mean + 1);
        fs::write(dir.join(format!("f{number:06}")), noise(rng, len as usize))?;
        total += len;
    }
    Ok(total)
}

/// A tree of C files: so many directories with so many files each, 1 to 8 KiB long.
pub fn source_tree(top: &Path, dirs: usize, files: usize) -> io::Result<()> {
    let mut rng = Rng::new(7);
    for dir in 0..dirs {
        let folder = top.join(format!("part{dir:02}"));
        fs::create_dir_all(&folder)?;
        for file in 0..files {
            let mut text = format!("/* Part {dir}, file {file}. */\n#include <stddef.h>\n");
            for function in 0..rng.below(24) + 4 {
                let (a, b) = (rng.below(1000), rng.below(1000));
                text += &format!(
                    "\nint f_{dir}_{file}_{function}(const int *values, size_t len)\n{{\n    int sum = {a};\n    \
                     for (size_t at = 0; at < len; at++)\n        sum += values[at] * {b} ^ (int)at;\n    \
                     return sum;\n}}\n"
                );
            }
            fs::write(folder.join(format!("file{file:02}.c")), text)?;
        }
    }
    Ok(())
}

/// All files and directories below `top`, by path, directories before what is in them.
pub fn all_below(top: &Path) -> io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut dirs, mut files) = (Vec::new(), Vec::new());
    let mut left = vec![top.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                left.push(entry.path());
                dirs.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    dirs.sort();
    files.sort();
    Ok((dirs, files))
}
