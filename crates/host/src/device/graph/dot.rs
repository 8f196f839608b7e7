//! Graphs as pictures.

use super::node::Node;
use super::{Graph, Recorded};
use std::fmt::Write;

impl Graph {
    /// Returns the graph in the language of Graphviz's `dot`. Graphs in it are boxes around their nodes.
    pub fn to_dot(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = writeln!(text, "digraph \"{}\" {{", escaped(&self.name));
        let _ = writeln!(text, "  node [shape=box];");
        draw(&mut text, &self.recorded, "n", "  ");
        text.push_str("}\n");
        text
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn draw(text: &mut String, recorded: &Recorded, prefix: &str, indent: &str) {
    for (at, entry) in recorded.nodes.iter().enumerate() {
        let (node, id) = (&entry.node, format!("{prefix}{at}"));
        let name = escaped(&node.name());
        let _ = match &**node {
            Node::Kernel(kernel) => {
                let [x, y, z] = kernel.grid.workgroups;
                let [a, b, c] = kernel.grid.workgroup_size;
                writeln!(text, "{indent}{id} [label=\"{at}: {name}\\n{x}x{y}x{z} of {a}x{b}x{c}\"];")
            }
            Node::Function(_) | Node::Empty => {
                writeln!(text, "{indent}{id} [label=\"{at}: {name}\", shape=ellipse];")
            }
            Node::Conditional(_) => writeln!(text, "{indent}{id} [label=\"{at}: {name}\", shape=diamond];"),
            Node::Transfer(_) | Node::Graph(_) => writeln!(text, "{indent}{id} [label=\"{at}: {name}\"];"),
        };
        for (number, child) in node.children().iter().enumerate() {
            let inner = format!("{id}_{number}_");
            let _ = writeln!(text, "{indent}subgraph cluster_{id}_{number} {{");
            let _ = writeln!(text, "{indent}  label=\"{at}.{number}\";");
            draw(text, child, &inner, &format!("{indent}  "));
            let _ = writeln!(text, "{indent}}}");
            if !child.nodes.is_empty() {
                let _ = writeln!(text, "{indent}{id} -> {inner}0 [style=dashed];");
            }
        }
    }
    for (at, entry) in recorded.nodes.iter().enumerate() {
        for before in &entry.after {
            let _ = writeln!(text, "{indent}{prefix}{before} -> {prefix}{at};");
        }
    }
}
