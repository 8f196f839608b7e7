//! The `name = value`, `name(list)` and `flag` options of an attribute.

use proc_macro2::TokenStream;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Expr, ExprLit, Ident, Lit, LitStr, Result, Token};

struct Item {
    name: Ident,
    given: Given,
}

/// What an option says besides its name.
enum Given {
    Nothing,
    Value(Expr),
    List(TokenStream),
}

impl Parse for Item {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = Ident::parse_any(input)?;
        let given = if input.parse::<Option<Token![=]>>()?.is_some() {
            Given::Value(ungrouped(input.parse()?))
        } else if input.peek(syn::token::Paren) {
            let list;
            syn::parenthesized!(list in input);
            Given::List(list.parse()?)
        } else {
            Given::Nothing
        };
        Ok(Self { name, given })
    }
}

/// The expression without the groups that `macro_rules!` puts around one.
fn ungrouped(expression: Expr) -> Expr {
    match expression {
        Expr::Group(group) => ungrouped(*group.expr),
        expression => expression,
    }
}

/// An attribute's options, taken one by one.
pub struct Options(Vec<Item>);

impl Options {
    pub fn parse(tokens: TokenStream) -> Result<Self> {
        let items = Punctuated::<Item, Token![,]>::parse_terminated.parse2(tokens)?;
        Ok(Self(items.into_iter().collect()))
    }

    /// The options of the attributes `#[hostcall(..)]` among these.
    pub fn of_attributes(attributes: &[Attribute]) -> Result<Self> {
        let mut all = Self(Vec::new());
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("hostcall")) {
            all.0.extend(Self::parse(attribute.meta.require_list()?.tokens.clone())?.0);
        }
        Ok(all)
    }

    /// Takes the text of option `name`, if it is given.
    pub fn text(&mut self, name: &str) -> Result<Option<LitStr>> {
        match self.value(name)? {
            None => Ok(None),
            Some(Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) => Ok(Some(text)),
            Some(other) => Err(Error::new_spanned(other, format!("`{name}` is a text: `{name} = \"..\"`"))),
        }
    }

    fn take(&mut self, name: &str) -> Option<Item> {
        let at = self.0.iter().position(|item| item.name == name)?;
        Some(self.0.remove(at))
    }

    /// Takes the value of option `name`, if it is given.
    pub fn value(&mut self, name: &str) -> Result<Option<Expr>> {
        match self.take(name) {
            None => Ok(None),
            Some(Item { given: Given::Value(value), .. }) => Ok(Some(value)),
            Some(Item { name, .. }) => Err(Error::new(name.span(), format!("write `{name} = ...`"))),
        }
    }

    /// Takes what option `name` has in parentheses, if it is given.
    pub fn list(&mut self, name: &str) -> Result<Option<TokenStream>> {
        match self.take(name) {
            None => Ok(None),
            Some(Item { given: Given::List(list), .. }) => Ok(Some(list)),
            Some(Item { name, .. }) => Err(Error::new(name.span(), format!("write `{name}(...)`"))),
        }
    }

    /// Takes the flag `name`.
    pub fn flag(&mut self, name: &str) -> Result<bool> {
        match self.take(name) {
            None => Ok(false),
            Some(Item { given: Given::Nothing, .. }) => Ok(true),
            Some(Item { name, .. }) => {
                Err(Error::new(name.span(), format!("`{name}` is a flag and takes no value")))
            }
        }
    }

    /// Fails if an option is left: it is unknown or given twice.
    pub fn finish(self, known: &str) -> Result<()> {
        match self.0.first() {
            None => Ok(()),
            Some(Item { name, .. }) => {
                Err(Error::new(name.span(), format!("unknown or repeated option `{name}`; known: {known}")))
            }
        }
    }
}
