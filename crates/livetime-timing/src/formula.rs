//! Formulas of the time `t`, for curves: numbers, `+ - * / ^`, brackets, a few functions.
//!
//! `t` is in seconds; `pi` and `e` are constants; functions are `sin cos tan exp ln sqrt abs tanh`
//! of one and `min max` of two arguments. `^` binds tighter than the sign and to the right. A
//! formula is bounded in length and depth, so that no text can exhaust anything. The curve is made
//! into coefficient sets by [`crate::waveform`].

/// Longest text that is read, bytes.
pub const TEXT_MAX: usize = 4096;
/// Deepest nesting.
const DEPTH_MAX: usize = 100;

/// A formula of `t`.
#[derive(Debug, Clone)]
pub struct Formula(Node);

#[derive(Debug, Clone)]
enum Node {
    Number(f64),
    Time,
    Negative(Box<Node>),
    Pair(Operator, Box<Node>, Box<Node>),
    Call(Function, Box<Node>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Power,
    Min,
    Max,
}

/// Why a text is not a formula.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at character {at} of the formula: found {found}, expected {expected}")]
pub struct FormulaError {
    /// Where, from 1.
    pub at: usize,
    /// What is there.
    pub found: String,
    /// What could be there.
    pub expected: &'static str,
}

/// A function of one argument.
type Function = fn(f64) -> f64;

const FUNCTIONS: [(&str, Function); 8] = [
    ("sin", f64::sin),
    ("cos", f64::cos),
    ("tan", f64::tan),
    ("exp", f64::exp),
    ("ln", f64::ln),
    ("sqrt", f64::sqrt),
    ("abs", f64::abs),
    ("tanh", f64::tanh),
];

const OPERAND: &str = "a number, `t`, `pi`, `e`, a function, `-` or `(`";

impl Formula {
    /// Reads a formula.
    ///
    /// # Errors
    /// [`FormulaError`] with the place and what could be there.
    pub fn parse(text: &str) -> Result<Self, FormulaError> {
        if text.len() > TEXT_MAX {
            return Err(FormulaError {
                at: TEXT_MAX + 1,
                found: "more text".to_owned(),
                expected: "at most 4096 characters",
            });
        }
        let mut reader = Reader {
            text: text.as_bytes(),
            at: 0,
            depth: 0,
        };
        let node = reader.sum()?;
        match reader.peek() {
            None => Ok(Self(node)),
            Some(_) => Err(reader.error("an operator or the end")),
        }
    }

    /// The value at `t` seconds; not a number where the formula has none.
    pub fn at(&self, t: f64) -> f64 {
        self.0.at(t)
    }
}

impl Node {
    fn at(&self, t: f64) -> f64 {
        match self {
            Self::Number(value) => *value,
            Self::Time => t,
            Self::Negative(node) => -node.at(t),
            Self::Call(function, node) => function(node.at(t)),
            Self::Pair(operator, left, right) => {
                let (left, right) = (left.at(t), right.at(t));
                match operator {
                    Operator::Add => left + right,
                    Operator::Subtract => left - right,
                    Operator::Multiply => left * right,
                    Operator::Divide => left / right,
                    Operator::Power => left.powf(right),
                    // Those of the library pass over what is not a number.
                    Operator::Min | Operator::Max if left.is_nan() || right.is_nan() => f64::NAN,
                    Operator::Min => left.min(right),
                    Operator::Max => left.max(right),
                }
            }
        }
    }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn take(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn error(&mut self, expected: &'static str) -> FormulaError {
        let found = match self.peek() {
            None => "the end".to_owned(),
            Some(byte) => format!("`{}`", char::from(byte)),
        };
        FormulaError {
            at: self.at + 1,
            found,
            expected,
        }
    }

    fn sum(&mut self) -> Result<Node, FormulaError> {
        let mut node = self.product()?;
        loop {
            let operator = match self.peek() {
                Some(b'+') => Operator::Add,
                Some(b'-') => Operator::Subtract,
                _ => return Ok(node),
            };
            self.at += 1;
            node = pair(operator, node, self.product()?);
        }
    }

    fn product(&mut self) -> Result<Node, FormulaError> {
        let mut node = self.signed()?;
        loop {
            let operator = match self.peek() {
                Some(b'*') => Operator::Multiply,
                Some(b'/') => Operator::Divide,
                _ => return Ok(node),
            };
            self.at += 1;
            node = pair(operator, node, self.signed()?);
        }
    }

    fn signed(&mut self) -> Result<Node, FormulaError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error("fewer levels of brackets and signs"));
        }
        let node = if self.take(b'-') {
            Node::Negative(Box::new(self.signed()?))
        } else {
            self.power()?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn power(&mut self) -> Result<Node, FormulaError> {
        let base = self.operand()?;
        if self.take(b'^') {
            return Ok(pair(Operator::Power, base, self.signed()?));
        }
        Ok(base)
    }

    fn operand(&mut self) -> Result<Node, FormulaError> {
        match self.peek() {
            Some(b'(') => {
                self.at += 1;
                let node = self.sum()?;
                self.close()?;
                Ok(node)
            }
            Some(byte) if byte.is_ascii_digit() || byte == b'.' => self.number(),
            Some(byte) if byte.is_ascii_alphabetic() => self.word(),
            _ => Err(self.error(OPERAND)),
        }
    }

    fn close(&mut self) -> Result<(), FormulaError> {
        if self.take(b')') {
            Ok(())
        } else {
            Err(self.error("an operator or `)`"))
        }
    }

    fn number(&mut self) -> Result<Node, FormulaError> {
        let start = self.at;
        let rest = &self.text[start..];
        let mut length = 0;
        while let Some(byte) = rest.get(length) {
            let exponent_sign = matches!(byte, b'+' | b'-')
                && matches!(rest.get(length.wrapping_sub(1)), Some(b'e' | b'E'));
            if !(byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E') || exponent_sign) {
                break;
            }
            length += 1;
        }
        let text = core::str::from_utf8(&rest[..length]).unwrap_or_default();
        match text.parse() {
            Ok(value) => {
                self.at += length;
                Ok(Node::Number(value))
            }
            Err(_) => Err(self.error("a number such as 2.5e-3")),
        }
    }

    fn word(&mut self) -> Result<Node, FormulaError> {
        let start = self.at;
        let rest = &self.text[start..];
        let length = rest
            .iter()
            .take_while(|b| b.is_ascii_alphanumeric())
            .count();
        let word = core::str::from_utf8(&rest[..length]).unwrap_or_default();
        let constant = match word {
            "t" => Some(Node::Time),
            "pi" => Some(Node::Number(core::f64::consts::PI)),
            "e" => Some(Node::Number(core::f64::consts::E)),
            _ => None,
        };
        if let Some(node) = constant {
            self.at += length;
            return Ok(node);
        }
        let function = FUNCTIONS.iter().find(|(name, _)| *name == word);
        let of_two = match word {
            "min" => Some(Operator::Min),
            "max" => Some(Operator::Max),
            _ => None,
        };
        if function.is_none() && of_two.is_none() {
            return Err(FormulaError {
                at: start + 1,
                found: format!("`{word}`"),
                expected: "`t`, `pi`, `e`, or sin cos tan exp ln sqrt abs tanh min max",
            });
        }
        self.at += length;
        if !self.take(b'(') {
            return Err(self.error("`(` after a function"));
        }
        let first = self.sum()?;
        let node = match (function, of_two) {
            (Some((_, function)), _) => Node::Call(*function, Box::new(first)),
            (None, Some(operator)) => {
                if !self.take(b',') {
                    return Err(self.error("an operator or `,`"));
                }
                pair(operator, first, self.sum()?)
            }
            (None, None) => first,
        };
        self.close()?;
        Ok(node)
    }
}

fn pair(operator: Operator, left: Node, right: Node) -> Node {
    Node::Pair(operator, Box::new(left), Box::new(right))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(text: &str, t: f64) -> f64 {
        Formula::parse(text).unwrap().at(t)
    }

    #[test]
    fn formulas_have_the_usual_meaning() {
        let cases = [
            ("1 + 2*3", 7.0),
            ("(1+2)*3", 9.0),
            ("-2^2", -4.0),
            ("2^-1", 0.5),
            ("2^3^2", 512.0),
            ("8/4/2", 1.0),
            ("1 - 2 - 3", -4.0),
            ("1e3 * 2.5E-3", 2.5),
            ("t*t", 9.0),
            ("max(t, 5) + min(1, 2)", 6.0),
            ("abs(-3) + sqrt(16)", 7.0),
            ("2 - -1", 3.0),
        ];
        for (text, expected) in cases {
            assert!((value(text, 3.0) - expected).abs() < 1e-12, "{text}");
        }
        assert!((value("sin(2*pi*t)", 0.25) - 1.0).abs() < 1e-12);
        for nothing in ["ln(0-1)", "min(ln(0-1), 1)", "max(0, 0/0)", "0 * (1/0)"] {
            assert!(value(nothing, 0.0).is_nan(), "{nothing}");
        }
    }

    #[test]
    fn errors_have_a_place() {
        let error = |text: &str| match Formula::parse(text) {
            Ok(formula) => panic!("{formula:?}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(
            error("1 + foo(t)"),
            "at character 5 of the formula: found `foo`, \
             expected `t`, `pi`, `e`, or sin cos tan exp ln sqrt abs tanh min max"
        );
        assert_eq!(
            error("(1"),
            "at character 3 of the formula: found the end, expected an operator or `)`"
        );
        for text in [
            "", "1 2", "sin t", "min(1)", "1..2", "2^", "*", "t)", "\u{3b1}",
        ] {
            assert!(error(text).starts_with("at character "), "{text}");
        }
        assert!(Formula::parse(&"(".repeat(4000)).is_err());
        assert!(Formula::parse(&"-".repeat(4000)).is_err());
        assert!(Formula::parse(&"1+".repeat(2049)).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[-+*/^()., 0-9tepiscoxnax]{0,60}") {
            if let Ok(formula) = Formula::parse(&text) {
                formula.at(0.5);
            }
        }
    }
}
