//! The middleware under a real server of actix-web.

use std::{
    future::ready,
    net::{Ipv4Addr, TcpListener},
};

use crate::support::{ask, assert_protects, describe, engine, from, guard, guards};
use actix_web::{
    App, HttpMessage, HttpRequest, HttpResponse, HttpServer, dev::ServiceResponse, error::ErrorUnauthorized,
    middleware::Condition, web,
};
use tidegate_middleware::decision::OwnedDecision;

async fn respond(request: HttpRequest) -> HttpResponse {
    if request.path().ends_with("/missing") {
        return HttpResponse::NotFound().finish();
    }
    HttpResponse::Ok().body(describe(request.extensions().get::<OwnedDecision>()))
}

#[test]
fn a_middleware_of_actix_web_protects_a_service() {
    actix_web::rt::System::new().block_on(protects_a_service());
}

async fn protects_a_service() {
    let engine = engine("");
    let guards = guards(&engine);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let of_workers = guards.clone();
    let around_errors = guard(&engine);
    let server = HttpServer::new(move || {
        // An inner middleware that responds by an error, as those for sign-in do.
        let refuses = web::scope("/errors")
            .wrap_fn(|_, _| ready(Err::<ServiceResponse, _>(ErrorUnauthorized("who are you?"))))
            .wrap(around_errors.clone());
        of_workers.iter().fold(App::new().service(refuses), |app, (name, guard)| {
            // A condition has the same type of body as any other middleware before the scope.
            let guard = Condition::new(true, guard.clone());
            app.service(web::scope(&format!("/{name}")).wrap(guard).default_service(web::to(respond)))
        })
    });
    let server = server.workers(2).disable_signals().listen(listener).expect("it listens").run();
    let handle = server.handle();
    let running = actix_web::rt::spawn(server);
    let holds = move || {
        assert_protects(address);
        let errors: Vec<_> = (0..3).map(|_| ask(address, "/errors/a", &from("192.0.2.10"))).collect();
        let outcomes = errors.iter().map(|response| (response.status, response.remaining())).collect::<Vec<_>>();
        assert_eq!(outcomes, [(401, Some("1")), (401, Some("0")), (429, Some("0"))]);
        assert_eq!(errors[0].body, "who are you?");
    };
    actix_web::rt::task::spawn_blocking(holds).await.expect("it holds");
    assert_eq!(["panics", "panics_of_cost"].map(|name| guards[name].counts().undecided()), [3, 3]);
    assert_eq!((guards["keys"].counts().no_identity(), guards["strict"].counts().no_identity()), (3, 1));
    handle.stop(false).await;
    running.await.expect("it ends").expect("without an error");
}
