// The same page while the study runs: progress above, and the newest report below, in which what was open stays open.
const part = (id) => document.getElementById(id);
const nameOf = (details) => details.querySelector("summary").textContent;
let newest = 0;

async function refresh(number) {
  newest = number;
  const text = await (await fetch(`/report?${number}`)).text();
  if (!text || number < newest) return;
  const main = document.querySelector("main"), found = new DOMParser().parseFromString(text, "text/html");
  const was = new Map([...main.querySelectorAll("details")].map((details) => [nameOf(details), details.open]));
  main.replaceChildren(...found.querySelector("main").children);
  for (const details of main.querySelectorAll("details")) details.open = was.get(nameOf(details)) ?? details.open;
  told.hidden = true;
  enhance(main);
}

const events = new EventSource("/events");
events.onmessage = (event) => {
  const state = JSON.parse(event.data);
  part("live").querySelector("progress").value = state.share;
  part("live-text").textContent = state.over ? state.text : `${Math.floor(100 * state.share)} %  ${state.text}`;
  part("live-failed").hidden = !state.failed.length;
  part("live-failed").textContent = `Failed: ${state.failed.join("; ")}`;
  if (state.report > newest) refresh(state.report);
  if (state.over) {
    part("live-note").hidden = true;
    events.close();
  }
};
events.onerror = () => {
  events.close();
  part("live-text").textContent = "The run was stopped. This page no longer changes.";
};
