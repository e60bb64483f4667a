// Keeps the page fresh: a live execution by its event stream, the list by asking now and then.
"use strict";
const main = () => document.querySelector("main");
let timer = 0, source = null;

async function refresh() {
  timer = 0;
  const answer = await fetch(location.href, { credentials: "same-origin" }).catch(() => null);
  if (!answer || !answer.ok) { later(2000); return; }
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const next = fresh.querySelector("main");
  if (!next) return;
  document.title = fresh.title;
  main().replaceWith(next);
  if (!next.dataset.live && source) { source.close(); source = null; }
}

function later(ms) { if (!timer) timer = setTimeout(refresh, ms); }

if (main().dataset.live) {
  source = new EventSource(main().dataset.live);
  const seen = () => later(150);
  for (const type of ["end", "JobStarted", "JobSucceeded", "JobFailed", "JobScheduled", "ErrorRaised",
    "CancelRequested", "ExecutionCompleted", "ExecutionFailed", "ExecutionCancelled"]) source.addEventListener(type, seen);
  source.addEventListener("end", () => { source.close(); });
  setInterval(() => { if (source && main().dataset.live) later(0); }, 3000);
} else if (location.pathname === "/") {
  setInterval(() => later(0), 2000);
}
