//! Just enough of Rust's lexis to tell code from comments, strings and tests. Never judges.

/// `text` with comments and the contents of strings blanked out; lines and columns stay.
pub(crate) fn only_code(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    // Blanks `n` characters and steps over them.
    let blank = |out: &mut String, i: &mut usize, n: usize| {
        for &c in chars.iter().skip(*i).take(n) {
            out.push(if c == '\n' { '\n' } else { ' ' });
        }
        *i += n;
    };
    while i < chars.len() {
        let rest = &chars[i..];
        let after_word = i > 0 && is_word(chars[i - 1]);
        let n = match rest {
            ['/', '/', ..] => rest.iter().position(|&c| c == '\n').unwrap_or(rest.len()),
            ['/', '*', ..] => block_comment(rest),
            ['"', ..] => string(rest),
            ['r' | 'b' | 'c', ..] if !after_word => prefixed_string(rest).unwrap_or(0),
            ['\'', '\\', ..] => 3 + rest[3..].iter().position(|&c| c == '\'').unwrap_or(0) + 1,
            ['\'', _, '\'', ..] => 3,
            _ => 0,
        };
        if n == 0 {
            out.push(rest[0]);
            i += 1;
        } else {
            blank(&mut out, &mut i, n);
        }
    }
    out
}

/// Whether a character may stand in an identifier.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut i) = (0, 0);
    while i < rest.len() {
        match rest[i..] {
            ['/', '*', ..] => (depth, i) = (depth + 1, i + 2),
            ['*', '/', ..] => {
                (depth, i) = (depth - 1, i + 2);
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    rest.len()
}

/// Length of a string that starts with its quote.
fn string(rest: &[char]) -> usize {
    let mut i = 1;
    while i < rest.len() {
        match rest[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    rest.len()
}

/// Length of `r"..."`, `br#"..."#`, `b"..."`, `c"..."`, `b'x'`; none if it is only a word.
fn prefixed_string(rest: &[char]) -> Option<usize> {
    let word = rest.iter().position(|&c| !is_word(c))?;
    let prefix: String = rest[..word].iter().collect();
    if !["r", "b", "c", "br", "cr"].contains(&prefix.as_str()) {
        return None;
    }
    let body = &rest[word..];
    let hashes = body.iter().take_while(|&&c| c == '#').count();
    if body.get(hashes) != Some(&'"') {
        return None;
    }
    if !prefix.contains('r') {
        return Some(word + string(body));
    }
    let end = (hashes + 1..body.len())
        .find(|&i| body[i] == '"' && body[i + 1..].iter().take_while(|&&c| c == '#').count() >= hashes);
    Some(word + end.map_or(body.len(), |i| i + 1 + hashes))
}

/// `code` (of [`only_code`]) with everything under `#[cfg(test)]` blanked out.
pub(crate) fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find(MARK) {
        let (before, test) = rest.split_at(at);
        out.push_str(before);
        let end = item_end(test);
        out.extend(test[..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &test[end..];
    }
    out.push_str(rest);
    out
}

/// Where the item ends that `code` starts with: behind its closing brace or its semicolon.
fn item_end(code: &str) -> usize {
    let mut depth = 0usize;
    for (i, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return i + 1;
                }
            }
            ';' if depth == 0 => return i + 1,
            _ => {}
        }
    }
    code.len()
}

/// Every path that a `use` brings in, with its line: `use std::{fs, io::Read}` is two.
pub(crate) fn uses(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = find_word(&code[at..], "use").map(|i| at + i) {
        let Some(end) = code[start..].find(';').map(|i| start + i) else { break };
        let line = code[..start].matches('\n').count() + 1;
        let tree: String = code[start + 3..end].split_whitespace().collect::<Vec<_>>().join(" ");
        flatten("", &tree, &mut |path| found.push((line, path)));
        at = end;
    }
    found
}

/// Gives each path of a use tree to `found`.
fn flatten(above: &str, tree: &str, found: &mut impl FnMut(String)) {
    let mut depth = 0;
    let mut parts = vec![String::new()];
    for c in tree.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    for part in parts.iter().map(|p| p.trim()).filter(|p| !p.is_empty()) {
        match part.split_once('{') {
            Some((prefix, inner)) => {
                let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
                flatten(&format!("{above}{}", prefix.trim()), inner, found);
            }
            None => {
                let path = part.split(" as ").next().unwrap_or(part).trim();
                let path = path.strip_suffix("::self").unwrap_or(path);
                let whole = format!("{above}{path}");
                found(whole.strip_suffix("::self").unwrap_or(&whole).to_owned());
            }
        }
    }
}

/// Where `word` stands in `text` with no identifier character joined to it.
pub(crate) fn find_word(text: &str, word: &str) -> Option<usize> {
    let joins =
        |inner: Option<char>, outer: Option<char>| inner.is_some_and(is_word) && outer.is_some_and(is_word);
    text.match_indices(word).map(|(i, _)| i).find(|&i| {
        let (before, after) = (text[..i].chars().next_back(), text[i + word.len()..].chars().next());
        !joins(word.chars().next(), before) && !joins(word.chars().next_back(), after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_vanish_and_code_keeps_its_place() {
        let text = "let a = \"fs // {\"; // rand::\n/* a /* b */ } */ let c = '\"'; let d: &'static str = r#\"x\"y\"#;";
        let code = only_code(text);
        assert_eq!(code.chars().count(), text.chars().count());
        for gone in ["fs", "rand", "{", "}", "\""] {
            assert!(!code.contains(gone), "{gone} in {code}");
        }
        for kept in ["let a =", "let c =", "&'static str"] {
            assert_eq!(code.find(kept), text.find(kept));
        }
    }

    #[test]
    fn escapes_and_byte_strings_end_where_they_end() {
        assert_eq!(only_code(r#"f("\\", '\'', b"\"", b'x') + 1"#).replace(' ', ""), "f(,,,b)+1");
        assert_eq!(only_code("br##\"a\"#b\"## x").trim(), "x");
        assert_eq!(only_code("'\\u{1F600}' y").trim(), "y");
        assert_eq!(only_code("for r in bits {}"), "for r in bits {}");
    }

    #[test]
    fn test_modules_vanish_and_what_follows_stays() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn x() { y(); }\n}\nfn b() {}\n#[cfg(test)]\nmod more;\nfn c() {}";
        let kept = without_tests(code);
        assert_eq!(kept.lines().count(), code.lines().count());
        assert_eq!(kept.split_whitespace().collect::<Vec<_>>().join(" "), "fn a() {} fn b() {} fn c() {}");
    }

    #[test]
    fn a_use_tree_is_its_paths() {
        let code = "use std::{fs::{self, File}, io as other};\nfn f() {}\npub use a::b;";
        let expected = [(1, "std::fs"), (1, "std::fs::File"), (1, "std::io"), (3, "a::b")];
        assert_eq!(uses(code), expected.map(|(line, path)| (line, path.to_owned())));
    }

    #[test]
    fn a_word_is_found_only_whole() {
        assert_eq!(find_word("operand::x rand::y", "rand::"), Some(11));
        assert_eq!(find_word("FsMutex MutexGuard", "Mutex"), None);
        assert_eq!(find_word("x.unwrap()", ".unwrap()"), Some(1));
    }
}
