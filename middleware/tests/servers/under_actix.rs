//! The middleware under a real server of actix-web.

use std::net::{Ipv4Addr, TcpListener};

use crate::support::{engine, guards, holds_of};
use actix_web::{App, HttpMessage, HttpRequest, HttpResponse, HttpServer, middleware::Condition, web};
use tidegate_middleware::ruling::Ruling;

async fn tell(request: HttpRequest) -> HttpResponse {
    if request.path().ends_with("/missing") {
        return HttpResponse::NotFound().finish();
    }
    let left = request.extensions().get::<Ruling>().and_then(|ruling| ruling.remaining);
    HttpResponse::Ok().body(left.map_or("no ruling".to_owned(), |left| left.to_string()))
}

#[test]
fn it_protects_a_service() {
    actix_web::rt::System::new().block_on(protects_a_service());
}

async fn protects_a_service() {
    let engine = engine("");
    let guards = guards(&engine);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let of_workers = guards.clone();
    let server = HttpServer::new(move || {
        of_workers.iter().fold(App::new(), |app, (name, guard)| {
            // A condition has the same type of body as any other middleware before the scope.
            let guard = Condition::new(true, guard.clone());
            app.service(web::scope(&format!("/{name}")).wrap(guard).default_service(web::to(tell)))
        })
    });
    let server = server.workers(2).disable_signals().listen(listener).expect("it listens").run();
    let handle = server.handle();
    let running = actix_web::rt::spawn(server);
    actix_web::rt::task::spawn_blocking(move || holds_of(address)).await.expect("it holds");
    assert_eq!((guards["keys"].counts().no_identity(), guards["strict"].counts().no_identity()), (3, 1));
    handle.stop(false).await;
    running.await.expect("it ends").expect("without an error");
}
