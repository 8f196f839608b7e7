//! What programs do with the network.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// All of it, with itself as the other side.
pub fn all() -> io::Result<()> {
    streams()?;
    limits()?;
    datagrams()?;
    errors();
    Ok(())
}

/// A server of lines, and a client of it.
fn streams() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = thread::spawn(move || -> io::Result<usize> {
        let mut count = 0;
        for stream in listener.incoming().take(2) {
            let mut stream = stream?;
            for line in BufReader::new(stream.try_clone()?).lines() {
                writeln!(stream, "{}", line?.to_uppercase())?;
                count += 1;
            }
        }
        Ok(count)
    });
    let mut stream = TcpStream::connect(address)?;
    println!("peer {}", stream.peer_addr()? == address && stream.local_addr()? != address);
    stream.set_nodelay(true)?;
    println!("nodelay {} ttl {}", stream.nodelay()?, stream.ttl()? > 0);
    stream.write_all(b"one\ntwo\n")?;
    let mut first = [0; 1];
    println!("peeked {} {:?}", stream.peek(&mut first)?, char::from(first[0]));
    let mut reader = BufReader::new(&stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    reader.read_line(&mut line)?;
    println!("{line:?}");
    drop(reader);
    drop(stream);

    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(60))?;
    let long = "a long line of words ".repeat(20_000);
    let mut other = stream.try_clone()?;
    let writer = thread::spawn(move || {
        other.write_all(long.as_bytes())?;
        other.write_all(b"\n")?;
        other.shutdown(Shutdown::Write)
    });
    let mut all = String::new();
    stream.read_to_string(&mut all)?;
    writer.join().unwrap()?;
    println!("{} bytes, {:?}", all.len(), &all[..11]);
    println!("served {}", server.join().unwrap()?);
    Ok(())
}

/// Who waits for what does not come, and who does not wait.
fn limits() -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let mut stream = TcpStream::connect(listener.local_addr()?)?;
    let (accepted, _) = listener.accept()?;
    stream.set_read_timeout(Some(Duration::from_millis(20)))?;
    println!("{:?}", stream.read_timeout()?);
    println!("{:?}", stream.read(&mut [0; 4]).map_err(|error| error.kind()));
    println!("{:?}", stream.set_read_timeout(Some(Duration::ZERO)).map_err(|error| error.kind()));
    listener.set_nonblocking(true)?;
    println!("{:?}", listener.accept().map(drop).map_err(|error| error.kind()));
    stream.set_read_timeout(None)?;
    stream.set_nonblocking(true)?;
    println!("{:?}", stream.read(&mut [0; 4]).map_err(|error| error.kind()));
    println!("{:?}", stream.take_error()?);
    drop(accepted);
    stream.set_nonblocking(false)?;
    println!("{:?}", stream.read(&mut [0; 4])?);
    Ok(())
}

fn datagrams() -> io::Result<()> {
    let server = UdpSocket::bind("127.0.0.1:0")?;
    let address = server.local_addr()?;
    let answers = thread::spawn(move || -> io::Result<()> {
        let mut room = [0; 100];
        for _ in 0..2 {
            let (len, from) = server.recv_from(&mut room)?;
            room[..len].reverse();
            server.send_to(&room[..len], from)?;
        }
        Ok(())
    });
    let client = UdpSocket::bind("127.0.0.1:0")?;
    client.send_to(b"stop", address)?;
    let mut room = [0; 3];
    let (len, from) = client.recv_from(&mut room)?;
    println!("{:?} {}", String::from_utf8_lossy(&room[..len]), from == address);
    client.connect(address)?;
    client.send(b"desserts")?;
    let mut room = [0; 100];
    println!("peeked {}", client.peek(&mut room)?);
    let len = client.recv(&mut room)?;
    println!("{:?}", String::from_utf8_lossy(&room[..len]));
    client.set_read_timeout(Some(Duration::from_millis(10)))?;
    println!("{:?}", client.recv(&mut room).map_err(|error| error.kind()));
    println!("{:?}", client.send(&[0; 70_000]).map_err(|error| error.to_string()));
    answers.join().unwrap()
}

fn errors() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    match free.and_then(TcpStream::connect) {
        Ok(_) => println!("somebody listens"),
        Err(error) => println!("{:?}: {error}", error.kind()),
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{:?}", TcpListener::bind(taken.local_addr().unwrap()).map(drop).map_err(|error| error.kind()));
    println!("{:?}", "no port".to_socket_addrs().map(drop).map_err(|error| error.kind()));
    let local: io::Result<Vec<_>> = "localhost:80".to_socket_addrs().map(Iterator::collect);
    println!("{}", local.is_ok_and(|found| found.iter().any(|address| address.ip().is_loopback())));
}

/// Connects to each address, and says what it hears.
pub fn reach(addresses: impl Iterator<Item = String>) -> io::Result<()> {
    for address in addresses {
        let heard = TcpStream::connect(&address).and_then(|mut stream| {
            stream.write_all(b"hello\n")?;
            stream.shutdown(Shutdown::Write)?;
            io::read_to_string(stream)
        });
        match heard {
            Ok(text) => println!("{address}: {text}"),
            Err(error) => println!("{address}: {:?}: {error}", error.kind()),
        }
    }
    let socket = UdpSocket::bind("127.0.0.1:0").map(drop);
    println!("datagrams {:?}", socket.map_err(|error| error.kind()));
    Ok(())
}

/// Listens at each address.
pub fn listen(addresses: impl Iterator<Item = String>) {
    for address in addresses {
        let (stream, datagrams) =
            (TcpListener::bind(&address).map(drop), UdpSocket::bind(&address).map(drop));
        let [stream, datagrams] = [stream, datagrams].map(|bound| bound.map_err(|error| error.kind()));
        println!("{address}: {stream:?} {datagrams:?}");
    }
}

/// Has threads wait for what never comes, does other things beside them, and then ends as is said.
pub fn wait_beside(how: &str) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let silent = UdpSocket::bind("127.0.0.1:0")?;
    let (begin, begun) = mpsc::channel();
    for i in 0..24 {
        let (listener, silent, begin) = (listener.try_clone()?, silent.try_clone()?, begin.clone());
        let stream = TcpStream::connect(address)?;
        thread::spawn(move || {
            begin.send(()).unwrap();
            match i % 3 {
                0 => {
                    while let Ok(stream) = listener.accept() {
                        // Nobody says anything on it.
                        std::mem::forget(stream);
                    }
                }
                1 => drop((&stream).read(&mut [0; 8])),
                _ => drop(silent.recv(&mut [0; 8])),
            }
            panic!("something came");
        });
    }
    (0..24).for_each(|_| begun.recv().unwrap());
    thread::sleep(Duration::from_millis(50));
    std::fs::write("beside", "them")?;
    println!("read {}", std::fs::read_to_string("beside")?);
    let all: Vec<SocketAddr> = address.to_string().to_socket_addrs()?.collect();
    println!("found {}", all == [address]);
    match how {
        "end" => {}
        "exit" => std::process::exit(3),
        "panic" => panic!("beside them"),
        _ => {
            println!("waits");
            // Those who connected before come first.
            loop {
                std::mem::forget(listener.accept()?);
            }
        }
    }
    Ok(())
}
