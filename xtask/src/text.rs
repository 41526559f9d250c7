//! Words in a line of text. Never judges.

/// Whether a character may stand in an identifier.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
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
    fn a_word_is_found_only_whole() {
        assert_eq!(find_word("operand::x rand::y", "rand::"), Some(11));
        assert_eq!(find_word("FsMutex MutexGuard", "Mutex"), None);
        assert_eq!(find_word("x.unwrap()", ".unwrap()"), Some(1));
    }
}
