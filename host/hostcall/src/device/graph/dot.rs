//! Graphs as pictures.

use super::node::Node;
use super::plan::MOST_NODES;
use super::{Graph, Recorded};
use crate::device::grid::Grid;
use std::fmt::Write;

impl Graph {
    /// Returns the graph in the language of Graphviz's `dot`. Graphs in it are boxes around their nodes. As many nodes are
    /// drawn as an instance may have; where there are more, the last one says so.
    pub fn to_dot(&self) -> String {
        let mut drawing = Drawing { text: String::new(), nodes_left: MOST_NODES, is_cut: false };
        // Writing to a string does not fail.
        let _ = writeln!(drawing.text, "digraph \"{}\" {{", escaped(&self.name));
        let _ = writeln!(drawing.text, "  node [shape=box];");
        drawing.draw(&self.recorded, "n", "  ");
        let Drawing { mut text, is_cut, .. } = drawing;
        if is_cut {
            let label = format!("more than {MOST_NODES} nodes: the rest is not drawn");
            let _ = writeln!(text, "  cut [label=\"{label}\", shape=note];");
        }
        text.push_str("}\n");
        text
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A picture that is being drawn. Graphs that have each other twice have more nodes than memory has room for.
struct Drawing {
    text: String,
    nodes_left: usize,
    is_cut: bool,
}

impl Drawing {
    /// Draws nodes and edges, and returns how many nodes: the first ones.
    fn draw(&mut self, recorded: &Recorded, prefix: &str, indent: &str) -> usize {
        let mut drawn = 0;
        for (at, entry) in recorded.nodes.iter().enumerate() {
            if self.nodes_left == 0 {
                self.is_cut = true;
                break;
            }
            self.nodes_left -= 1;
            drawn += 1;
            let text = &mut self.text;
            let (node, id) = (&entry.node, format!("{prefix}{at}"));
            let name = escaped(&node.name());
            let _ = match (&**node, node.grid()) {
                (_, Some(Grid { workgroups: [x, y, z], workgroup_size: [a, b, c], .. })) => {
                    writeln!(text, "{indent}{id} [label=\"{at}: {name}\\n{x}x{y}x{z} of {a}x{b}x{c}\"];")
                }
                (Node::Function(_) | Node::Empty, _) => {
                    writeln!(text, "{indent}{id} [label=\"{at}: {name}\", shape=ellipse];")
                }
                (Node::Conditional(_), _) => {
                    writeln!(text, "{indent}{id} [label=\"{at}: {name}\", shape=diamond];")
                }
                _ => writeln!(text, "{indent}{id} [label=\"{at}: {name}\"];"),
            };
            for (number, child) in node.children().iter().enumerate() {
                let inner = format!("{id}_{number}_");
                let _ = writeln!(self.text, "{indent}subgraph cluster_{id}_{number} {{");
                let name =
                    if child.name.is_empty() { String::new() } else { format!(": {}", escaped(&child.name)) };
                let _ = writeln!(self.text, "{indent}  label=\"{at}.{number}{name}\";");
                let drawn = self.draw(child, &inner, &format!("{indent}  "));
                let _ = writeln!(self.text, "{indent}}}");
                if drawn > 0 {
                    let _ = writeln!(self.text, "{indent}{id} -> {inner}0 [style=dashed];");
                }
            }
        }
        for (at, entry) in recorded.nodes[..drawn].iter().enumerate() {
            for before in entry.after.iter().filter(|before| (**before as usize) < drawn) {
                let _ = writeln!(self.text, "{indent}{prefix}{before} -> {prefix}{at};");
            }
        }
        drawn
    }
}
