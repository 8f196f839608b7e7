//! Instances: nodes made by hand, what they keep, new arguments and graphs, caches.

use super::*;

#[test]
fn an_instance_keeps_what_its_nodes_use() {
    let (device, stream, _) = open();
    let dropped = Arc::new(AtomicU64::new(0));
    let out = device.alloc_zeroed::<u64>(1).unwrap();
    let instance = {
        let scratch = device.alloc_zeroed::<u64>(1).unwrap();
        let told = Told(dropped.clone());
        let closure = Hostcall::continuous(&device, move |x: u64| {
            let _ = &told;
            x + 1
        })
        .unwrap();
        let told = Told(dropped.clone());
        let graph = stream.capture(LOCAL, |stream| {
            stream.write(&scratch, &[41])?;
            call_closure.launch(stream, ONE, (&closure, &scratch))?;
            stream.repeated_function(move || _ = &told)?;
            stream.copy(&out, &scratch)
        });
        graph.unwrap().instantiate().unwrap()
    };
    for _ in 0..3 {
        out.write(&[0]).unwrap();
        instance.launch(&stream).unwrap();
        assert_eq!(out.read().unwrap(), [42]);
    }
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    // A replay on its way keeps it too.
    let gate = device.alloc_zeroed::<u64>(1).unwrap();
    wait_for_gate.launch(&stream, ONE, (&gate,)).unwrap();
    out.write(&[0]).unwrap();
    instance.launch(&stream).unwrap();
    drop(instance);
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    assert!(gate.write_now(&[1]).unwrap());
    stream.synchronize().unwrap();
    assert_eq!(out.read().unwrap(), [42]);
    eventually(|| dropped.load(Ordering::Relaxed) == 2);
}

#[test]
fn nodes_made_by_hand() {
    let (device, stream, _) = open();
    let values = device.alloc_zeroed::<u64>(4).unwrap();
    let mut graph = Graph::new(&device).named("hand");
    assert_eq!((graph.name(), graph.is_empty()), ("hand", true));
    // Added last, done first.
    let double = graph.add_kernel(&add_plain, Grid::new(1, 4), (&values, &values));
    assert!(matches!(double, Err(Error::Refused(_))), "what is read plainly is not written");
    let last = graph.add_kernel(&add, Grid::new(1, 4), (&values, 1u64)).unwrap();
    let first = graph.add_fill(&values, 5).unwrap();
    let middle = graph.add_empty();
    graph.edge(first, middle).unwrap();
    graph.edge(middle, last).unwrap();
    assert_eq!(graph.find("add"), Some(last));
    let instance = graph.instantiate().unwrap();
    instance.launch(&stream).unwrap();
    assert_eq!(values.read().unwrap(), [6; 4]);

    graph.edge(last, first).unwrap();
    assert!(matches!(broken(graph.instantiate()), GraphError::Circle { .. }));
    let mut small = Graph::new(&device);
    assert!(matches!(broken(small.edge(first, last)), GraphError::NoSuchNode { nodes: 0, .. }));
    let once = Hostcall::once(&device, |x: u64| x).unwrap();
    let refused = small.add_kernel(&call_closure, ONE, (&once, &values));
    assert!(matches!(broken(refused), GraphError::OneShotClosure { argument: 0, .. }));
    // Other devices' buffers, graphs and streams.
    let (other, other_stream, _) = open();
    let foreign = other.alloc_zeroed::<u64>(4).unwrap();
    assert!(matches!(small.add_fill(&foreign, 1), Err(Error::OtherDevice { .. })));
    assert!(matches!(small.add_graph(&Graph::new(&other)), Err(Error::OtherDevice { .. })));
    assert!(matches!(instance.launch(&other_stream), Err(Error::OtherDevice { .. })));

    // Graphs in graphs.
    let mut inner = Graph::new(&device);
    inner.add_kernel(&add, Grid::new(1, 4), (&values, 10u64)).unwrap();
    let mut outer = Graph::new(&device);
    let clear = outer.add_fill(&values, 0).unwrap();
    let (one, two) = (outer.add_graph(&inner).unwrap(), outer.add_graph(&inner).unwrap());
    outer.edge(clear, one).unwrap();
    outer.edge(one, two).unwrap();
    let captured = stream.capture(LOCAL, |stream| {
        stream.add_graph(&outer)?;
        add.launch(stream, Grid::new(1, 4), (&values, 1u64)).map(drop)
    });
    captured.unwrap().instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(values.read().unwrap(), [21; 4]);
    assert_eq!(broken(stream.add_graph(&outer)), GraphError::NotCapturing { call: "add_graph" });
    let mut deep = Graph::new(&device);
    for _ in 0..32 {
        let mut around = Graph::new(&device);
        around.add_graph(&deep).unwrap();
        deep = around;
    }
    deep.instantiate().unwrap();
    let (mut around, flat, condition) = (Graph::new(&device), Graph::new(&device), Condition::function(|| 0));
    for refused in [
        around.add_graph(&deep),
        around.add_if(&condition, &deep),
        around.add_if_else(&condition, &flat, &deep),
        around.add_while(&condition, &deep),
        around.add_switch(&condition, &[&flat, &deep]),
    ] {
        assert_eq!(broken(refused), GraphError::TooDeep { limit: 32 });
    }
    assert!(around.is_empty());
    let captured = stream.capture(LOCAL, |stream| stream.add_graph(&deep));
    assert_eq!(broken(captured), GraphError::TooDeep { limit: 32 });
}

#[test]
fn pictures_have_the_names_of_bodies() {
    let (device, stream, _) = open();
    let values = device.alloc_zeroed::<u64>(1).unwrap();
    let body = |stream: &Stream| add.launch(stream, ONE, (&values, 1u64)).map(drop);
    let [named, other] = [(); 2].map(|()| stream.capture(LOCAL, body).unwrap());
    let mut graph = Graph::new(&device);
    graph.add_switch(&Condition::function(|| 0), &[&named.named("a \"step\""), &other]).unwrap();
    let dot = graph.to_dot();
    for label in ["label=\"0.0: a \\\"step\\\"\";", "label=\"0.1\";"] {
        assert!(dot.contains(label), "{dot}");
    }
}

/// Graphs that have each other twice have more nodes than memory has room for.
#[test]
fn pictures_stop_at_the_nodes_that_an_instance_may_have() {
    let (device, ..) = open();
    let mut graph = Graph::new(&device);
    for _ in 0..17 {
        let mut around = Graph::new(&device);
        let [one, two] = [(); 2].map(|()| around.add_graph(&graph).unwrap());
        around.edge(one, two).unwrap();
        graph = around;
    }
    assert_eq!(broken(graph.instantiate().map(drop)), GraphError::TooManyNodes { limit: 65_536 });
    let dot = graph.to_dot();
    assert_eq!(dot.matches("[label=\"").count(), 65_536 + 1);
    assert!(
        dot.ends_with("  cut [label=\"more than 65536 nodes: the rest is not drawn\", shape=note];\n}\n")
    );
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
    // No edge leads to a node that is not drawn.
    assert!(dot.contains(" n0 [") && !dot.contains(" n1 [") && !dot.contains("-> n1;"));
}

#[test]
fn arguments_are_set_and_graphs_updated() {
    let (device, stream, _) = open();
    let [a, b] = [(); 2].map(|()| device.alloc_zeroed::<u64>(2).unwrap());
    let build = |to: &DeviceBuffer<u64>, by: u64| {
        let graph = stream.capture(LOCAL, |stream| {
            add.launch(stream, ONE, (to, by))?;
            stream.repeated_function(|| ())
        });
        graph.unwrap()
    };
    let graph = build(&a, 1);
    let node = graph.find("add").unwrap();
    let instance = graph.instantiate().unwrap();
    instance.launch(&stream).unwrap();
    instance.set(node, &add, Grid::new(1, 2), (&b, 10u64)).unwrap();
    instance.launch(&stream).unwrap();
    assert_eq!((a.read().unwrap(), b.read().unwrap()), (vec![1, 0], vec![10, 10]));
    let refused = instance.set(node, &call, ONE, (1u64,));
    assert!(matches!(broken(refused), GraphError::OtherKernel { .. }));
    assert!(matches!(instance.set(node, &add, Grid::new(0, 1), (&b, 10u64)), Err(Error::Refused(_))));
    let function = graph.nodes().nth(1).unwrap().0;
    assert!(matches!(broken(instance.set(function, &add, ONE, (&b, 1u64))), GraphError::OtherKernel { .. }));

    assert!(instance.update(&build(&a, 100)).unwrap());
    instance.launch(&stream).unwrap();
    assert_eq!((a.read().unwrap(), b.read().unwrap()), (vec![101, 0], vec![10, 10]));
    let mut other = build(&a, 1);
    other.add_empty();
    assert!(!instance.update(&other).unwrap());
    let error = instance.try_update(&other).unwrap_err().to_string();
    assert_eq!(error, "the instance cannot be updated: node 2: there are 2 nodes, and 3 in the new graph");
    let mut other = Graph::new(&device);
    other.add_kernel(&call, ONE, (1u64,)).unwrap();
    let error = instance.try_update(&other).unwrap_err().to_string();
    assert_eq!(error, "the instance cannot be updated: node 0: it launches add, and call in the new graph");
    let (elsewhere, ..) = open();
    assert!(matches!(instance.update(&Graph::new(&elsewhere)), Err(Error::OtherDevice { .. })));
    let mut other = Graph::new(&device);
    other.add_while(&Condition::function(|| 0), &Graph::new(&device)).unwrap();
    let error = instance.try_update(&other).unwrap_err().to_string();
    assert_eq!(
        error,
        "the instance cannot be updated: node 0: it is of kind `kernel`, and of kind `while` in the new graph"
    );
    device.close();
    let (_open, stream, _) = open();
    assert!(matches!(instance.launch(&stream), Err(Error::Closed)));
}

/// Devices fill with short patterns alone: other values are written. Updates tell by what was asked for.
#[test]
fn instances_take_fills_writes_and_copies_of_any_values() {
    let (device, stream, _) = open();
    let [a, b] = [(); 2].map(|()| device.alloc_zeroed::<u64>(4).unwrap());
    let bytes = device.alloc_zeroed::<u8>(24).unwrap();
    let build = |value: u64| {
        let graph = stream.capture(LOCAL, |stream| {
            stream.fill(&a, value)?;
            stream.write(&b.part(..2)?, &[value; 2])?;
            stream.copy(&b.part(2..)?, &b.part(..2)?)?;
            stream.fill_bytes(&bytes, &value.to_ne_bytes())
        });
        graph.unwrap()
    };
    let instance = build(5).instantiate().unwrap();
    for value in
        [6, 0, u64::MAX, 0x0101_0101_0101_0101, 0x0001_0001_0001_0001, 1 << 40, 0x0000_0007_0000_0007, 5]
    {
        instance.try_update(&build(value)).unwrap();
        instance.launch(&stream).unwrap();
        assert_eq!((a.read().unwrap(), b.read().unwrap()), (vec![value; 4], vec![value; 4]), "{value:#x}");
        assert_eq!(bytes.read().unwrap(), value.to_ne_bytes().repeat(3), "{value:#x}");
    }
    let refused = stream.fill_bytes(&bytes, &[1, 2, 3, 4, 5]).unwrap_err().to_string();
    assert_eq!(refused, "a buffer of 24 bytes does not hold a whole number of values of 5 bytes");
}

/// Kernels of other paths or of other parameters are other kernels, whatever they are called.
#[test]
fn updates_tell_kernels_of_one_name_apart() {
    let (device, ..) = open();
    let values = device.alloc_zeroed::<u64>(1).unwrap();
    let mut graph = Graph::new(&device);
    let node = graph.add_kernel(&add, ONE, (&values, 1u64)).unwrap();
    let instance = graph.instantiate().unwrap();
    let mut other = Graph::new(&device);
    other.add_kernel(&namesake::add, ONE, (&values, 1u64)).unwrap();
    let error = instance.try_update(&other).unwrap_err().to_string();
    let start = "the instance cannot be updated: node 0: it launches add (path ";
    assert!(error.starts_with(start) && error.contains(", and add (path "), "{error}");
    let error = instance.set(node, &namesake::add, ONE, (&values, 1u64)).unwrap_err().to_string();
    assert!(error.starts_with("node 0 is add (path ") && error.contains("no launch of add (path"), "{error}");
}

/// A fill of a long pattern is done as a write is, and is a fill all the same.
#[test]
fn fills_are_updated_to_other_fills() {
    let (device, stream, _) = open();
    let values = device.alloc_zeroed::<u64>(4).unwrap();
    let filled = |value: u64| stream.capture(LOCAL, |stream| stream.fill(&values, value)).unwrap();
    let instance = filled(7).instantiate().unwrap();
    for value in [0x0102_0304_0506_0708, 9 << 40, 0] {
        let graph = filled(value);
        assert!(graph.nodes().all(|(_, kind, _)| kind == NodeKind::Fill));
        instance.try_update(&graph).unwrap();
        instance.launch(&stream).unwrap();
        assert_eq!(values.read().unwrap(), [value; 4]);
    }
    let mut written = Graph::new(&device);
    written.add_write(&values, &[1; 4]).unwrap();
    assert!(!instance.update(&written).unwrap());
}

/// Kernels of graphs in graphs and of bodies are set by their paths.
#[test]
fn arguments_are_set_in_graphs_in_graphs() {
    let (device, stream, _) = open();
    let values = device.alloc_zeroed::<u64>(1).unwrap();
    let mut inner = Graph::new(&device);
    let step = inner.add_kernel(&add, ONE, (&values, 1u64)).unwrap();
    let mut outer = Graph::new(&device);
    let (first, second) = (outer.add_graph(&inner).unwrap(), outer.add_graph(&inner).unwrap());
    let on = Condition::function(|| 1);
    let bodies = outer.add_switch(&on, &[&Graph::new(&device), &inner]).unwrap();
    outer.edge(first, second).unwrap();
    outer.edge(second, bodies).unwrap();
    let instance = outer.instantiate().unwrap();
    let mut expected = 0;
    let mut replay = |by: u64| {
        instance.launch(&stream).unwrap();
        expected += by;
        assert_eq!(values.read().unwrap(), [expected]);
    };
    replay(3);
    instance.set(NodePath::from(second).node(step), &add, ONE, (&values, 10u64)).unwrap();
    replay(12);
    instance.set(NodePath::from(bodies).body(1).node(step), &add, ONE, (&values, 100u64)).unwrap();
    replay(111);
    // The graph is as it was.
    outer.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(values.read().unwrap(), [expected + 3]);
    for path in [
        NodePath::from(second).node(bodies),
        NodePath::from(bodies).body(0).node(step),
        NodePath::from(bodies).node(step),
        NodePath::from(first).node(step).node(step),
    ] {
        let refused = instance.set(path.clone(), &add, ONE, (&values, 1u64));
        assert!(matches!(broken(refused), GraphError::NoSuchNode { node, .. } if node == path), "{path}");
    }
    let why = |path: NodePath| broken(instance.set(path, &add, ONE, (&values, 1u64))).to_string();
    let text = why(NodePath::from(bodies).node(step));
    assert_eq!(
        text,
        format!(
            "there is no node {bodies}.0: that is a body, and a node in it is named by `.body(0)` and `.node(..)`"
        )
    );
    let text = why(NodePath::from(first).node(step).body(0));
    assert_eq!(
        text,
        format!("there is no node {first}.0.0: node {first}.0 (add) has no bodies and is no graph")
    );
    let refused = instance.set(NodePath::from(bodies).body(2).node(step), &add, ONE, (&values, 1u64));
    let error = broken(refused).to_string();
    assert_eq!(error, format!("node {bodies} has no body 2: it has 2, from number 0 on"));
    let refused = instance.set(first, &add, ONE, (&values, 1u64));
    assert!(matches!(broken(refused), GraphError::OtherKernel { .. }));
    stream.synchronize().unwrap();
}

/// A node that only waits for a circle is not said to wait for itself, and graphs that lie in others are
/// named.
#[test]
fn circles_are_named_by_a_node_of_theirs() {
    let (device, ..) = open();
    let mut graph = Graph::new(&device);
    let nodes = [(); 5].map(|()| graph.add_empty());
    for (first, then) in [(4, 3), (3, 4), (3, 2), (2, 1), (1, 0), (0, 1)] {
        graph.edge(nodes[first], nodes[then]).unwrap();
        if then == 2 {
            let error = broken(graph.instantiate()).to_string();
            assert!(error.starts_with("node 3 waits for itself") || error.starts_with("node 4 "), "{error}");
        }
    }
    let mut outer = Graph::new(&device);
    outer.add_empty();
    outer.add_if_else(&Condition::function(|| 1), &Graph::new(&device), &graph).unwrap();
    let error = broken(outer.instantiate());
    let GraphError::Circle { node } = &error else { panic!("{error}") };
    assert!(matches!(node.numbers(), [1, 1, 0 | 1 | 3 | 4]), "{error}");
}

/// Numbers of nodes are the same in every graph, and a node is of one graph, its clones and its instances.
#[test]
fn nodes_of_other_graphs_are_refused() {
    let (device, stream, _) = open();
    let values = device.alloc_zeroed::<u64>(1).unwrap();
    let build = || {
        let mut graph = Graph::new(&device);
        let node = graph.add_kernel(&add, ONE, (&values, 1u64)).unwrap();
        (graph, node)
    };
    let ((mut graph, node), (theirs, other)) = (build(), build());
    assert_eq!(node.index(), other.index());
    assert_ne!(node, other);
    let is_refused = |result: Result<(), Error>| {
        let error = broken(result);
        assert!(matches!(error, GraphError::OtherGraph { .. }), "{error}");
        error.to_string()
    };
    let then = graph.add_empty();
    is_refused(graph.edge(other, then));
    is_refused(graph.edge(then, other));
    graph.edge(node, then).unwrap();
    let sentence = is_refused(graph.instantiate().unwrap().set(other, &add, ONE, (&values, 2u64)));
    assert!(sentence.starts_with("node 0 is meant of another graph: "), "{sentence}");

    // Clones have the nodes that were there, and nodes of their own.
    let mut clone = graph.clone();
    let (mine, its) = (graph.add_empty(), clone.add_empty());
    clone.edge(node, its).unwrap();
    is_refused(clone.edge(node, mine));
    clone.instantiate().unwrap().set(node, &add, ONE, (&values, 2u64)).unwrap();

    // In graphs in graphs, too.
    let mut outer = Graph::new(&device);
    let (inside, on) = (outer.add_graph(&theirs).unwrap(), Condition::function(|| 1));
    let choice = outer.add_if_else(&on, &Graph::new(&device), &theirs).unwrap();
    let instance = outer.instantiate().unwrap();
    let set = |path: NodePath| instance.set(path, &add, ONE, (&values, 3u64));
    let paths =
        |of: NodeId, node: NodeId| [NodePath::from(of).node(node), NodePath::from(of).body(1).node(node)];
    let sentence = is_refused(set(paths(inside, node)[0].clone()));
    assert!(sentence.starts_with("node 0.0 is meant of"), "{sentence}");
    let sentence = is_refused(set(paths(choice, node)[1].clone()));
    assert!(sentence.starts_with("node 1.1.0 is meant of"), "{sentence}");
    let sentence = is_refused(set(paths(node, other)[0].clone()));
    assert!(sentence.starts_with("node 0 is meant of"), "{sentence}");
    set(paths(inside, other)[0].clone()).unwrap();
    set(paths(choice, other)[1].clone()).unwrap();
    // What was set is the same node.
    set(paths(inside, other)[0].clone()).unwrap();

    // After an update, nodes of both graphs are meant.
    let ((first, mine), (second, its), (third, last)) = (build(), build(), build());
    let instance = first.instantiate().unwrap();
    let set = |node: NodeId| instance.set(node, &add, ONE, (&values, 10u64));
    is_refused(set(its));
    instance.try_update(&second).unwrap();
    [mine, its].into_iter().for_each(|node| set(node).unwrap());
    is_refused(set(last));
    instance.try_update(&third).unwrap();
    [mine, last].into_iter().for_each(|node| set(node).unwrap());
    is_refused(set(its));
    instance.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(values.read().unwrap(), [10]);
}

#[test]
fn a_cache_hands_out_the_same_memory() {
    let (device, stream, _) = open();
    let cache = AllocCache::new(&device);
    let work = |stream: &Stream| -> Result<DeviceBuffer<u64>, Error> {
        let (sum, ones) = (device.alloc_zeroed::<u64>(8)?, device.alloc_zeroed::<u64>(8)?);
        stream.fill(&ones, 1)?;
        add_plain.launch(stream, Grid::new(1, 8), (&sum, &ones))?;
        Ok(sum)
    };
    let (mut sum, mut addresses) = (None, Vec::new());
    for _ in 0..3 {
        let graph = cache.with(|| {
            stream.capture(LOCAL, |stream| {
                sum = Some(work(stream)?);
                Ok(())
            })
        });
        let sum = sum.as_ref().unwrap();
        assert_eq!(sum.read().unwrap(), [0; 8], "it is zeroed when it is handed out");
        let instance = graph.unwrap().instantiate().unwrap();
        for _ in 0..4 {
            instance.launch(&stream).unwrap();
        }
        assert_eq!(sum.read().unwrap(), [4; 8]);
        addresses.push(sum.address());
        assert_eq!(broken(cache.clear()), GraphError::CacheInUse { allocations: 2 });
    }
    assert!(addresses.iter().all(|address| *address == addresses[0]) && cache.len() == 2);
    stream.synchronize().unwrap();
    eventually(|| cache.clear().is_ok());
    assert!(cache.is_empty());
    // Under a cache of another device nothing is cached, and the memory is used after the capture.
    let (other, ..) = open();
    let foreign = AllocCache::new(&other);
    let mut sum = None;
    let graph = foreign.with(|| {
        stream.capture(LOCAL, |stream| {
            sum = Some(work(stream)?);
            Ok(())
        })
    });
    assert_eq!(broken(graph), GraphError::Allocated { call: "alloc_zeroed" });
    assert!(foreign.is_empty());
}

/// Kernels that use memory as cells run side by side, so that its cells are of one size.
#[test]
fn a_cache_hands_out_memory_for_values_of_one_type() {
    let (device, ..) = open();
    let cache = AllocCache::new(&device);
    let words = cache.with(|| device.alloc_zeroed::<u64>(8)).unwrap();
    let bytes = cache.with(|| device.alloc_zeroed::<u8>(64)).unwrap();
    assert_ne!(words.address(), bytes.address());
    let [again, others] = cache.with(|| {
        [device.upload(&[7u8; 64]).unwrap().address(), device.alloc_zeroed::<u64>(8).unwrap().address()]
    });
    assert_eq!([again, others], [bytes.address(), words.address()]);
    assert_eq!((words.read().unwrap(), cache.len()), (vec![0; 8], 2));
}
