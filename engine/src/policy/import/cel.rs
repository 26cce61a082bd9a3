//! A parser for the CEL expressions of limitador's files: values of the first descriptor, and their equality with texts.

use std::{iter::Peekable, vec::IntoIter};

/// The notation of a value, which says where limitador looks for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Notation {
    /// `descriptors[0].x`: in the first descriptor of an RLS call.
    First,
    /// `x`: among the values of an HTTP call.
    Bare,
}

pub(super) type DescriptorKey = (String, Notation);

/// Parses `descriptors[0].x == 'a'`, `descriptors[0]['x.y'] == "a"` and `x == 'a'`, also with the sides exchanged and joined by
/// `&&`. Returns the keys with the values that they must have. The error says what else the text has.
pub(super) fn equalities(text: &str) -> Result<Vec<(DescriptorKey, String)>, String> {
    let mut tokens = Tokens::of(text)?;
    let mut found = Vec::new();
    loop {
        found.push(if let Some(value) = tokens.text() {
            tokens.expect_mark("==")?;
            (tokens.key()?, value)
        } else {
            let key = tokens.key()?;
            tokens.expect_mark("==")?;
            (key, tokens.text().ok_or(BEYOND)?)
        });
        if tokens.0.peek().is_none() {
            return Ok(found);
        }
        tokens.expect_mark("&&")?;
    }
}

/// Parses `descriptors[0].x`, `descriptors[0]['x.y']` or `x`.
pub(super) fn variable(text: &str) -> Result<DescriptorKey, String> {
    let mut tokens = Tokens::of(text)?;
    let key = tokens.key()?;
    if tokens.0.peek().is_none() { Ok(key) } else { Err(BEYOND.to_owned()) }
}

const BEYOND: &str =
    "only a value of `descriptors[0]` that equals a text in quotes, several joined by `&&`, can be imported";

#[derive(Clone, PartialEq, Debug)]
enum Token {
    Word(String),
    Number(String),
    Text(String),
    Mark(&'static str),
}

/// The remaining tokens of a text.
struct Tokens(Peekable<IntoIter<Token>>);

impl Tokens {
    fn of(text: &str) -> Result<Self, String> {
        let mut tokens = Vec::new();
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let token;
            (token, rest) = match first {
                '\'' | '"' => quoted(rest)?,
                _ if first.is_ascii_digit() => cut(rest, |c| c.is_ascii_digit(), Token::Number),
                _ if is_of_word(first) => cut(rest, is_of_word, Token::Word),
                _ => {
                    let mark = ["==", "&&", ".", "[", "]"].into_iter().find(|mark| rest.starts_with(mark));
                    let mark = mark.ok_or_else(|| BEYOND.to_owned())?;
                    (Token::Mark(mark), &rest[mark.len()..])
                }
            };
            tokens.push(token);
            rest = rest.trim_start();
        }
        Ok(Self(tokens.into_iter().peekable()))
    }

    /// Takes the next token if it is a text in quotes.
    fn text(&mut self) -> Option<String> {
        match self.0.next_if(|token| matches!(token, Token::Text(_))) {
            Some(Token::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn expect_mark(&mut self, mark: &'static str) -> Result<(), String> {
        if self.0.next() == Some(Token::Mark(mark)) { Ok(()) } else { Err(BEYOND.to_owned()) }
    }

    fn key(&mut self) -> Result<DescriptorKey, String> {
        match self.0.next() {
            Some(Token::Word(word)) if word == "descriptors" => {}
            Some(Token::Word(word)) if !["true", "false", "null", "limit", "in"].contains(&word.as_str()) => {
                return Ok((word, Notation::Bare));
            }
            _ => return Err(BEYOND.to_owned()),
        }
        self.expect_mark("[")?;
        match self.0.next() {
            Some(Token::Number(number)) if number == "0" => {}
            Some(Token::Number(number)) => {
                return Err(format!("a value of the descriptor {number}, which is asked by itself"));
            }
            _ => return Err(BEYOND.to_owned()),
        }
        self.expect_mark("]")?;
        match (self.0.next(), self.0.next()) {
            (Some(Token::Mark(".")), Some(Token::Word(key))) => Ok((key, Notation::First)),
            (Some(Token::Mark("[")), Some(Token::Text(key))) => self.expect_mark("]").map(|()| (key, Notation::First)),
            _ => Err(BEYOND.to_owned()),
        }
    }
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the first token, made of the characters that `fit`, and the rest of the text.
fn cut(text: &str, fit: fn(char) -> bool, token: fn(String) -> Token) -> (Token, &str) {
    let (first, rest) = text.split_at(text.find(|c| !fit(c)).unwrap_or(text.len()));
    (token(first.to_owned()), rest)
}

/// Returns the quoted text at the beginning, and the rest.
fn quoted(text: &str) -> Result<(Token, &str), String> {
    let mut characters = text.char_indices();
    let quote = characters.next().map(|(_, quote)| quote);
    let mut value = String::new();
    while let Some((place, c)) = characters.next() {
        match c {
            _ if Some(c) == quote => return Ok((Token::Text(value), &text[place + c.len_utf8()..])),
            '\\' => value.push(match characters.next() {
                Some((_, c @ ('\\' | '\'' | '"' | '`' | '?'))) => c,
                Some((_, 'n')) => '\n',
                Some((_, 't')) => '\t',
                Some((_, 'r')) => '\r',
                _ => return Err("an escape in a text that is not known here".to_owned()),
            }),
            _ => value.push(c),
        }
    }
    Err("a text without its end".to_owned())
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_limits_are_parsed() {
        let first = |key: &str| (key.to_owned(), Notation::First);
        let bare = |key: &str| (key.to_owned(), Notation::Bare);
        let one = |key: (String, Notation), value: &str| Ok(vec![(key, value.to_owned())]);
        for (text, found) in [
            ("descriptors[0].req_method == 'GET'", one(first("req_method"), "GET")),
            ("descriptors[0]['req.method'] == \"GET\"", one(first("req.method"), "GET")),
            ("req_method=='POST'", one(bare("req_method"), "POST")),
            (" 'a b' == descriptors[0][\"x\"] ", one(first("x"), "a b")),
            ("x == 'it\\'s \\\\ \"1\" é'", one(bare("x"), "it's \\ \"1\" é")),
            ("x == 'a == b && c'", one(bare("x"), "a == b && c")),
            (
                "descriptors[0].a == '1' && b == \"2\"",
                Ok(vec![(first("a"), "1".to_owned()), (bare("b"), "2".to_owned())]),
            ),
        ] {
            assert_eq!(equalities(text), found, "{text}");
        }
        assert_eq!(variable("descriptors[0].user_id"), Ok(first("user_id")));
        assert_eq!(variable("descriptors[0]['user.id']"), Ok(first("user.id")));
        assert_eq!(variable("user_id"), Ok(bare("user_id")));
    }

    #[test]
    fn other_expressions_are_refused() {
        for text in [
            "",
            "true",
            "x",
            "x == y",
            "x != 'a'",
            "x == 1",
            "x == 'a",
            "x == 'a' || y == 'b'",
            "x == 'a' &&",
            "!(x == 'a')",
            "descriptors[1].x == 'a'",
            "descriptors.x == 'a'",
            "descriptors[0] == 'a'",
            "descriptors[0].x.y == 'a'",
            "descriptors[0].x.startsWith('a')",
            "x in ['a']",
            "x.y == 'a'",
            "x == 'a' + 'b'",
            "x == '\\x41'",
            "limit.name == 'a'",
            "x == 'a' 'b'",
        ] {
            assert!(equalities(text).is_err(), "{text}");
        }
        for text in ["", "'x'", "descriptors[1].x", "descriptors[0]", "size(x)", "x.y", "x y", "descriptors[0].x + 'a'"]
        {
            assert!(variable(text).is_err(), "{text}");
        }
    }
}
