// Requests to the server. Errors have the program's own line.

const AWAY = "The server does not answer.";

async function asked(path, options = {}) {
  const answer = await fetch(path, options).catch((error) => {
    throw error.name === "AbortError" ? error : new Error(AWAY);  // browsers have words of their own for it
  });
  if (answer.status === 401) location.assign("/login");
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({ detail: answer.statusText }))).detail);
  return answer;
}

function form(fields) {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    const isFile = value instanceof Blob;
    body.append(name, isFile || typeof value !== "object" ? value : JSON.stringify(value));
  }
  return body;
}

export const get = async (path) => (await asked(path)).json();
export const remove = (path) => asked(path, { method: "DELETE" });
export const post = (path, fields, signal) => asked(path, { method: "POST", body: form(fields), signal });

export function upload(file, progress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();  // fetch does not say how much is sent
    request.upload.onprogress = (event) => progress(event.loaded / event.total);
    request.onerror = () => reject(new Error(AWAY));
    request.onload = () => {
      const answer = JSON.parse(request.responseText);
      if (request.status === 201) resolve(answer);
      else reject(new Error(answer.detail));
    };
    request.open("POST", "/api/inputs");
    request.send(form({ file }));
  });
}
